#!/bin/sh
# Inside a guest, on the files of the host: networks, one device of the fabric each, then the agent.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
hostname "guest-$zerohop_side"
ip link set lo up
ulimit -n 65536  # the kernel gives its first process 1024

wire() {  # wire NUMBER NETDEV: an address and a device on it
  ip link set "$2" mtu 4200 up  # room for an RDMA MTU of 4096
  ip address add "10.77.$1.$((zerohop_side + 1))/24" dev "$2"
  rdma link add "$zerohop_fabric$1" type "$zerohop_fabric" netdev "$2" ||
    echo "zerohop: no device $zerohop_fabric$1"
}

if [ "$zerohop_wires" = 0 ]; then
  ip link add dummy0 type dummy
  wire 0 dummy0
fi
number=0
while [ "$number" -lt "$zerohop_wires" ]; do
  wire "$number" "eth$number"
  number=$((number + 1))
done

if [ -n "$zerohop_shell" ]; then
  cd "$zerohop_repository" || exit
  TERM=$zerohop_shell PATH="$(dirname "$zerohop_python"):$PATH" \
    setsid -c "$(command -v bash || echo sh)" </dev/ttyS0 >/dev/ttyS0 2>&1
else
  "$zerohop_python" "$zerohop_vm/agent.py"
fi
echo o >/proc/sysrq-trigger
sleep 60  # the kernel would panic if its first process ended before the power is off
