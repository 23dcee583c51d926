#!/bin/busybox sh
# The first process of a guest: load modules, put a writable layer over the host's files, go there.
# The kernel passes zerohop_* of its command line as environment variables.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /modules/*.ko; do
  insmod "$module" || echo "zerohop: insmod $module failed"
done

# What the host has is read, what a program writes stays in the memory of the guest.
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /host &&
  mount -t tmpfs -o size=75% layer /layer &&
  mkdir /layer/upper /layer/work &&
  mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /root ||
  echo "zerohop: the files of the host cannot be mounted"
for folder in dev proc sys; do
  mount --move /$folder /root/$folder
done
exec switch_root /root /bin/sh "$zerohop_vm/setup.sh"
