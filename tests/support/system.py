"""What the kernel says of a process: its sockets, its memory; no knowledge of any format needed."""

import os
import socket
from contextlib import suppress
from pathlib import Path

LISTEN, ESTABLISHED = "0A", "01"  # include/net/tcp_states.h


def socket_inodes(pid: int | str = "self") -> dict[int, int]:
    """inode -> descriptor of every socket the process has open."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = os.readlink(entry)
            if target.startswith("socket:["):
                found[int(target[8:-1])] = int(entry.name)
    return found


def device_descriptors() -> int:
    """How many descriptors of verbs devices this process has open: TCP sockets of the software HCA."""
    local = {line.split()[6] for line in Path("/proc/self/net/unix").read_text().splitlines()}
    device_files = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            device_files += "infiniband" in os.readlink(entry)
    return device_files + sum(str(inode) not in local for inode in socket_inodes())


def _tcp_table(pid: int | str) -> list[tuple[str, int, str, int]]:
    """(IPv4 address, port, state, inode) of every TCP socket in the process's network."""
    rows = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        address, port = words[1].split(":")
        ip = socket.inet_ntoa(bytes.fromhex(address)[::-1])  # printed as a little-endian number
        rows.append((ip, int(port, 16), words[3], int(words[9])))
    return rows


def listening_ports(pid: int | str = "self") -> list[tuple[str, int]]:
    """Where the process listens over TCP: control and data ports alike."""
    mine = socket_inodes(pid)
    found = [row for row in _tcp_table(pid) if row[2] == LISTEN and row[3] in mine]
    return [("127.0.0.1" if ip == "0.0.0.0" else ip, port) for ip, port, _, _ in found]


def waiting_to_come_in(pid: int | str = "self") -> int:
    """Connections to its ports that the process has yet to accept."""
    mine = socket_inodes(pid)
    waiting = 0
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == LISTEN and int(words[9]) in mine:
            waiting += int(words[4].split(":")[1], 16)  # rx_queue, of a listener its backlog
    return waiting


def connected_sockets(pid: int | str = "self") -> list[int]:
    """Descriptors of the process's established TCP connections."""
    mine = socket_inodes(pid)
    table = _tcp_table(pid)
    return [mine[inode] for _, _, state, inode in table if state == ESTABLISHED and inode in mine]


def resident_nbytes(pid: int | str = "self") -> int:
    """Memory of the process that is in RAM."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
