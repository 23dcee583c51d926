"""How large a job may be: what a rank takes, what breaks first, and which knobs move that (`zerohop scale`).

    zerohop scale --ranks 1000,100000             # all to all, on mlx5 adapters, with this host's limits
    zerohop scale --ranks 1000 --on soft0 --peers 64 --message-slots 4 --message-bytes 1024 --json

Every Peer that a rank has used costs, on each rail, one RC queue pair, its work queues, two memory regions and the buffers
that the peer's messages land in; besides, a control connection, of which a heartbeat tells each second that it lives.
Nothing is shared between Peers but the completion queue of the device, the notification board and registered arrays (one
region and key for each rail, whoever uses it). A rank that was never needed costs nothing but its entry in the store.
Peers of the same host have all that as well, for what p2p does not carry, and 5 KB of RAM more for p2p.

What breaks first, with the defaults:

- On adapters, pinned memory. A queue pair has 53 buffers of 16 KiB for messages (870 KB) and, on mlx5, 131 KB of send
  queue: 1.0 MB that may not be paged out. The 8 MiB of RLIMIT_MEMLOCK that Linux gives are 8 Peers: lift it, as for every
  user of RDMA. 1000 Peers of each of 8 ranks are 8 GB of the host. `message_slots`, `message_bytes` and `send_depth`
  lower it: 4, 1024 and 32 make it 31 KB, at the price that a send() of more than 1 KiB waits for its recv(), and that
  four notifications, not 32, are on their way before the next waits for the peer to take one.
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
- Rails share load, not state: each multiplies queue pairs and buffers of every Peer.

What it does not do, and how it would go:

- Eviction. Peers are not closed by themselves: transfers, segments and collectives hold them, and a Peer that ends is lost
  at the other end. What could go to sleep is the queue pair alone. The Peer, its control connection, its posted recvs and
  messages that wait stay (PathGroup has them); the end that wants it asks the other by a control message with the number
  of messages it has sent; the other, if it has nothing posted, in line or offered, and has taken that many, destroys its
  queue pair and buffers and answers with its own number, upon which the first does so once it has taken those. Until then
  jobs wait in line, as they do for a repair; the first of either end asks for a fresh queue pair (Requeue, which exists).
  A limit on queue pairs that are awake has to give way where all are busy: two ranks that each wait for the other's
  place would wait for ever.
- A shared receive queue (SRQ). It would make message buffers those of the Endpoint, not of the Peer: 870 KB of receive
  and send buffers would shrink to the send half, 270 KB, which could be shared in turn. It is no contained change.
  Credits are the reason: a sender never overruns the receiver's slots because each Peer's are its own; from a shared queue
  one eager Peer could take all, and the others would meet RNR, whose retries stop a queue pair for up to 0.5 s and, where
  rnr_retry is not 7, end it. Credits would have to be granted from a common pool and taken back. Besides, a slot is named by
  its number within the path (VerbsPath::on_receive, post_receive_slot, held_slots_), of which the rail would be the owner,
  held slots of one slow Peer would starve the rest, and the software HCA has no SRQ. Smaller windows give most of the gain.

Constants are counted in the code, measured on soft0 (`make endurance` prints the model beside a thousand Peers, a test
does so for fewer), or read from rdma-core and publications, as the source says beside each. No adapter was measured.
"""

from zerohop.scale.limits import Limit, System, limits
from zerohop.scale.model import Job, Weight, weigh

__all__ = ["Job", "Limit", "System", "Weight", "limits", "weigh"]
