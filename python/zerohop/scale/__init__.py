"""How large a job may be: what a rank takes, what breaks first, and which knobs move that (`zerohop scale`).

    zerohop scale --ranks 1000,100000             # all to all, on mlx5 adapters, with this host's limits
    zerohop scale --ranks 1000 --on soft0 --peers 64 --message-slots 4 --message-bytes 1024 --json
    zerohop scale --ranks 5000 --awake 64         # with max_awake_peers=64: of the others the queue pairs sleep

Every Peer that a rank has used costs, on each rail and unless it sleeps, one RC queue pair, its work queues, two memory
regions and the buffers that the peer's messages land in; besides, a control connection, of which a heartbeat tells each
second that it lives. Nothing is shared between Peers but the completion queue of the device, the notification board and
registered arrays (one region and key for each rail, whoever uses it). A rank that was never needed costs nothing but its
entry in the store.
Peers of the same host have all that as well, for what p2p does not carry, and 5 KB of RAM more for p2p.

What breaks first, with the defaults:

- On adapters, pinned memory. A queue pair has 53 buffers of 16 KiB for messages (870 KB) and, on mlx5, 131 KB of send
  queue: 1.0 MB that may not be paged out. The 8 MiB of RLIMIT_MEMLOCK that Linux gives are 8 Peers: lift it, as for every
  user of RDMA. 1000 Peers of each of 8 ranks are 8 GB of the host. `message_slots`, `message_bytes` and `send_depth`
  lower it: 4, 1024 and 32 make it 31 KB, at the price that a send() of more than 1 KiB waits for its recv(), and that
  four notifications, not 32, are on their way before the next waits for the peer to take one; `max_awake_peers`, at
  that of waking.
- On soft0, descriptors: two for each Peer, of the 1024 that shells have (`ulimit -n`); then entries of the completion
  queue, 295 for each Peer of 2**20, which `send_depth` lowers.
- Next, the adapter's memory for the state of queue pairs. It lies in the host's memory (ICM, on mlx5) and is cached by
  the adapter: from some thousand on, of all ranks that share it, requests wait for that. This makes them slower, and
  breaks nothing. No model of ours can tell by how much; the figure that is used is published, of a ConnectX-5.
- Max_qp, max_cqe and max_mr of the device follow, then, at 8192 ranks, the slots that collectives have on each rank's
  board, and the heartbeats, two messages a second for each Peer, encrypted, by one thread.

What the design does about it:

- Connections that come all at once wait for one thread: 900 Endpoints that connected to one in the same moment were
  connected within 0.7 s, 2400 within 5.3 s (soft0, one host of two cores).
- Lazy connections. A World connects two ranks when one first needs the other: what counts is `--peers`, the ranks that a
  rank ever uses, not the size of the job. Rings and trees of collectives, halos and pipelines keep it small.
- Smaller windows. Both ends tell what they take (Hello), and each keeps to what the other said: a hub with many
  Peers takes few and short messages, its clients need not know.
- A cap. `max_peers` refuses one more, at both ends and in words, before the system or the adapter does so in the middle
  of a transfer.
- Eviction: queue pairs sleep. With `max_awake_peers` an Endpoint that has more Peers awake gives the queue pairs and message
  buffers of those used least lately back, at both ends. The Peer stays, and with it its control connection and heartbeats,
  posted recvs, and messages that wait for one: nothing that holds it notices, and all that is asked of it works. Who wishes
  to sleep tells how many messages it has sent and taken; the other agrees if it has nothing under way and the same numbers,
  so that none is lost on its way. The next use by either end has fresh queue pairs made and connected, as after an error:
  about a millisecond on soft0, not measured on an adapter, where creating one takes longer. Only who was unused for 100 ms
  sleeps, so a Peer in steady use never does; one that is used each second pays that millisecond each second.
  It is no hard limit: whatever is in use stays awake, and of many that connect at once all are awake for the third of a
  second until they are looked at. Nobody waits for a place: two ranks that each waited for the other's would wait for ever.
  What the model takes for `--awake` is thus how many are used at a time, where those are more than `max_awake_peers`.
- Rails share load, not state: each multiplies queue pairs and buffers of every Peer.

What it does not do: share receive buffers (a shared receive queue, SRQ). It would make them those of the Endpoint, and each Peer
would keep its half for sending, 270 of 870 KB. But a sender never overruns the receiver's slots because each Peer's are its
own; from a shared queue one eager Peer could take all, and the others would meet RNR, which stops a queue pair for up to
0.5 s: credits would have to be granted from a common pool, and taken back. The knobs make it unnecessary: only Peers that
are awake have buffers, and smaller windows shrink those.

Constants are counted in the code, measured on soft0 (`make endurance` prints the model beside a thousand Peers, a test
does so for fewer), or read from rdma-core and publications, as the source says beside each. No adapter was measured.
"""

from zerohop.scale.limits import Limit, System, limits
from zerohop.scale.model import Job, Weight, weigh

__all__ = ["Job", "Limit", "System", "Weight", "limits", "weigh"]
