"""The topology of this machine: its devices, and the distances between them.

>>> import zerohop as zh
>>> machine = zh.topology()
>>> machine.nearest("cuda:0")
(RdmaDevice(name='mlx5_0', ...),)
"""

from zerohop.topology.distance import Distance
from zerohop.topology.gpu import Gpu
from zerohop.topology.net import NetDevice
from zerohop.topology.numa import NumaNode
from zerohop.topology.pci import PciDevice
from zerohop.topology.rdma import Gid, Port, RdmaDevice
from zerohop.topology.topology import Topology, topology

__all__ = [
    "Distance",
    "Gid",
    "Gpu",
    "NetDevice",
    "NumaNode",
    "PciDevice",
    "Port",
    "RdmaDevice",
    "Topology",
    "topology",
]
