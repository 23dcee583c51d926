"""A model of the resources that one rank of a job uses on its host and its adapter.

Each constant has its source: counted in the code, measured on soft0 (tests/contract/test_scale_model.py compares the model
with measurements), read from the driver's source, or published. No adapter was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerohop._endpoint.knobs import KNOBS

_DEFAULT = {knob.name: knob.default for knob in KNOBS}

# --- counted in the code ---
_HEADER = 40  # bytes before the payload of a message (cpp/engine/path/message.hpp)
_CREDITS = 5  # receive requests for credits (MessageWindow)
_RECEIVES = 512  # messages of the shared receive queue of a rail, at most (ReceivePool)
_SENDS = 16  # buffers in a block of the SendPool
_RESERVE = 2  # send requests for credits (PeerRail)
_SEND_SGE = 16  # scatter/gather elements of a send request (QueuePairOptions)
_REGIONS = 1  # per queue pair: the results of atomics
_WORD = 8
_HEARTBEATS = 2  # per second and Peer: one out, one in

# --- measured: 200 Peers of one Endpoint on soft0, x86-64, glibc 2.36 ---
_PEER = 8_000  # bytes of RAM of an idle Peer besides the following
_QUEUE_PAIR = 8_500  # ... on each rail
_SOFT_USED = 6_000  # ... on each rail of soft0 after messages in both directions
_SOFT_DESCRIPTORS = 2  # the control connection, and that of the queue pair
_CONNECT_S = 1.25e-3  # one Peer after the other, both ends on one host with two cores
_IDLE_S = 25e-6  # of a core, per second, for the heartbeats of an idle Peer
_ALONE = {"descriptors": 18, "maps": 180, "nbytes": 26_000_000}  # a process with an Endpoint

# --- mlx5: rdma-core, providers/mlx5/verbs.c, mlx5_calc_sq_size() and mlx5_calc_rq_size() ---
_WQE_FIXED = 192  # bytes of a send request besides its elements
_ELEMENT = 16
_BLOCK = 64  # requests take whole blocks
_CQE = 64


@dataclass(frozen=True)
class Job:
    """The job to model.

    ranks: of the World. peers: of each rank, as many as it uses; None: all others. per_host: ranks on one host.
    rails: devices of an Endpoint. adapters: of a host, which its ranks share evenly. on: "soft0" or "mlx5".
    memories: arrays that a rank has registered. The others: as in Endpoint.
    """

    ranks: int
    peers: int | None = None
    per_host: int = 8
    rails: int = 1
    adapters: int = 1
    on: str = "mlx5"
    memories: int = 16
    message_slots: int = _DEFAULT["message_slots"]
    message_bytes: int = _DEFAULT["message_bytes"]
    send_depth: int = _DEFAULT["send_depth"]

    @property
    def degree(self) -> int:
        """The number of Peers of a rank."""
        others = self.ranks - 1
        return others if self.peers is None else min(self.peers, others)


@dataclass(frozen=True)
class Weight:
    """The resources of one rank with all its Peers, and of its adapter.

    idle_nbytes: RAM, while nobody has sent a message; resident_nbytes: once each buffer was used; pinned_nbytes: the part
    of both that cannot be paged out.
    completions: entries of the completion queue of a rail. connect_s: seconds for all Peers, one after the other;
    None: not measured. idle_cpu: part of a core, for heartbeats. maps: at most, as neighbouring ones are merged.
    adapter_queue_pairs: of all ranks that share one.
    """

    peers: int
    queue_pairs: int
    memory_regions: int
    registered_nbytes: int
    idle_nbytes: int
    resident_nbytes: int
    pinned_nbytes: int
    descriptors: int
    maps: int
    completions: int
    heartbeats_per_s: int
    idle_cpu: float
    connect_s: float | None
    adapter_queue_pairs: int


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def receive_blocks(job: Job) -> int:
    """Blocks of the shared receive queue of a rail: one for each of the first Peers, with room for all its messages."""
    return min(job.degree, max(1, _RECEIVES // (job.message_slots + _CREDITS)))


def message_nbytes(job: Job, buffers: int) -> int:
    return buffers * (_HEADER + job.message_bytes)


def registered_nbytes(job: Job) -> int:
    """Per rail, before anything was sent: receive buffers, and words for the results of atomics."""
    receives = receive_blocks(job) * (job.message_slots + _CREDITS)
    words = job.degree * _WORD * (job.send_depth + _RESERVE)
    return message_nbytes(job, receives) + words


def completions(job: Job) -> int:
    """Entries of the completion queue of a rail."""
    receives = max(_RECEIVES, job.message_slots + _CREDITS)
    return job.degree * (job.send_depth + _RESERVE) + receives


def queue_nbytes(job: Job) -> int:
    """Per rail: the send queues and the completion queue, in the layout of mlx5."""
    request = -(-(_WQE_FIXED + _ELEMENT * _SEND_SGE) // _BLOCK) * _BLOCK
    sends = _power_of_two((job.send_depth + _RESERVE) * request)
    return job.degree * sends + completions(job) * _CQE


def weigh(job: Job) -> Weight:
    """The resources of a rank that has used all its Peers."""
    peers, soft = job.degree, job.on == "soft0"
    pairs = peers * job.rails
    registered = job.rails * (registered_nbytes(job) + message_nbytes(job, _SENDS))
    pinned = 0 if soft else registered + job.rails * queue_nbytes(job)
    idle = _ALONE["nbytes"] + peers * (_PEER + job.rails * _QUEUE_PAIR) + pinned
    used = registered + pairs * _SOFT_USED
    on_wire = _SOFT_DESCRIPTORS - 1 if soft else 0  # per queue pair
    blocks = job.rails * receive_blocks(job)
    return Weight(
        peers=peers,
        queue_pairs=pairs,
        memory_regions=pairs * _REGIONS + blocks + job.memories * job.rails,
        registered_nbytes=registered,
        idle_nbytes=idle,
        resident_nbytes=idle + (used if soft else 0),
        pinned_nbytes=pinned,
        descriptors=_ALONE["descriptors"] + peers + pairs * on_wire,
        maps=_ALONE["maps"] + blocks + 1,
        completions=completions(job),
        heartbeats_per_s=peers * _HEARTBEATS,
        idle_cpu=peers * _IDLE_S,
        connect_s=peers * _CONNECT_S if soft and job.rails == 1 else None,
        adapter_queue_pairs=pairs * job.per_host // job.adapters,
    )
