"""How large a job may be: the resources of a rank, what breaks first, and the knobs that change that (`zerohop scale`).

    zerohop scale --ranks 1000,100000             # all to all, on mlx5 adapters, with this host's limits
    zerohop scale --ranks 1000 --on soft0 --peers 64 --message-slots 4 --message-bytes 1024 --json

Every Peer that a rank has used costs one RC queue pair with its send queue on each rail, one small memory region, and a
control connection with a heartbeat a second. All Peers of an Endpoint share the buffers for messages (a shared receive
queue on each rail, and a pool of send buffers), the completion queue of the device, the notification board and registered
arrays. A rank that was never needed costs only its entry in the store. Peers on the same host have all of that as
well, for operations without p2p, and 5 KB of additional RAM for p2p.

What breaks first, with the defaults:

- On adapters, pinned memory. A Peer takes 150 KB on mlx5, mostly send queue, and the message buffers of an Endpoint are
  8 MB on each rail, which are added with the first 13 Peers. The 8 MiB of RLIMIT_MEMLOCK in Linux are enough for 7 Peers:
  raise it, as for every user of RDMA. `send_depth` lowers the first, `message_slots` and `message_bytes` the second.
- On soft0, descriptors: two per Peer, of the 1024 in shells (`ulimit -n`); then entries of the completion
  queue, 258 per Peer of 2**20, which `send_depth` lowers.
- Next, the adapter's memory for the state of queue pairs. It lies in host memory (ICM, on mlx5) and the adapter
  caches it: from some thousand queue pairs of all ranks that share it, requests wait for it. They become slower, and
  nothing breaks. Our model does not predict by how much; it uses a published figure of a ConnectX-5.
- Then max_qp, max_cqe and max_mr of the device; at 8192 ranks the slots of collectives on each rank's board; and
  the heartbeats, two encrypted messages a second per Peer, by one thread.

What the design does about it:

- Simultaneous connections wait for one thread: 900 Endpoints that connected to one at the same moment were
  connected within 0.7 s, 2400 within 5.3 s (soft0, one host with two cores).
- Lazy connections. A World connects two ranks when one first needs the other. So `--peers` counts, the number of ranks that a
  rank uses, not the size of the job. Rings and trees of collectives, halos and pipelines keep it small.
- Shared buffers. A sender has at most `message_slots` messages in flight to one Peer (credits). The shared receive
  queue has 512 buffers, or `message_slots` + 5 if that is more. When more messages than that come at once the device
  holds senders back (RNR NAK) until the receiver takes messages, which it does whenever it polls.
- Smaller windows. Both ends send their limits (Hello), and each respects the other's: a hub with many Peers
  can accept few and short messages, and its clients need no settings.
- A cap. `max_peers` refuses one more Peer at both ends, with an error that says so, before the system or the adapter
  fails in the middle of a transfer.
- Rails share load, not state: each multiplies the queue pairs of every Peer and the buffers of the Endpoint.

Constants are counted in the code, measured on soft0 (`make endurance` compares the model with a thousand Peers, a test
does so for fewer), or read from rdma-core and publications, as the source says next to each. No adapter was measured.
"""

from zerohop.scale.limits import Limit, System, limits
from zerohop.scale.model import Job, Weight, weigh

__all__ = ["Job", "Limit", "System", "Weight", "limits", "weigh"]
