"""The files of a simulation: what a program sees in /sys and /dev, and which queue pairs there are.

mlx5sim.so leads paths in /sys/class/infiniband*, /dev/infiniband and /sys/module/nvidia_peermem here (tree.hpp).
"""

from pathlib import Path

SOFTWARE = "simulated by zerohop"


def build(root: Path, devices: int = 2) -> None:
    """Makes `devices` adapters, mlx5sim0, mlx5sim1, ..., below the folder `root`."""
    _write(
        root / "sys/module/nvidia_peermem/version", SOFTWARE
    )  # GPU memory is registered by its addresses
    verbs = root / "sys/class/infiniband_verbs"
    _write(verbs / "abi_version", "6")
    (root / "dev/infiniband").mkdir(parents=True)
    for number in range(devices):
        name = f"mlx5sim{number}"
        # The provider is found by the identity of a PCI device; all that is asked about it says what it is.
        _write(verbs / f"uverbs{number}/ibdev", name)
        _write(verbs / f"uverbs{number}/abi_version", "1")
        _write(verbs / f"uverbs{number}/dev", "1:3")  # as of /dev/null, which is what is opened
        (root / f"dev/infiniband/uverbs{number}").symlink_to("/dev/null")
        _adapter(root / "sys/class/infiniband" / name, number)
        (root / "queue_pairs" / name).mkdir(parents=True)


def _adapter(folder: Path, number: int) -> None:
    guid = f"0200:00ff:fe00:{number + 1:04x}"
    link_local = f"fe80:0000:0000:0000:{guid}"
    ipv4 = f"0000:0000:0000:0000:0000:ffff:7f50:00{number + 1:02x}"
    for name, text in {
        "node_type": "1: CA",
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_desc": SOFTWARE,
        "fw_ver": "0.0.0000",
        "hca_type": "mlx5sim",
        "board_id": SOFTWARE,
        "device/modalias": "pci:v000015B3d0000101Esv00000000sd00000000bc02sc00i00",
        "ports/1/state": "4: ACTIVE",
        "ports/1/phys_state": "5: LinkUp",
        "ports/1/link_layer": "Ethernet",
        "ports/1/rate": "1 Gb/sec (1X)",
        "ports/1/lid": "0x0",
        "ports/1/pkeys/0": "0xffff",
        **{f"ports/1/gids/{i}": gid for i, gid in enumerate([link_local] * 2 + [ipv4] * 2)},
        **{
            f"ports/1/gid_attrs/types/{i}": kind
            for i, kind in enumerate(["IB/RoCE v1", "RoCE v2"] * 2)
        },
        **{f"ports/1/gid_attrs/ndevs/{i}": "lo" for i in range(4)},
    }.items():
        _write(folder / name, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
