"""The raw verbs operations: what arrives, in which order, and what each error looks like."""

import numpy as np
import pytest
import zerohop as zh
from support.verbs_pair import NBYTES, Side, connect, make_side, take, take_error
from zerohop import verbs
from zerohop.verbs import Access


@pytest.fixture
def opened(device):
    return verbs.Device(device)


@pytest.fixture
def pair(opened):
    return connect(make_side(opened), make_side(opened))


def test_write(pair):
    here, there = pair
    here.qp.post_send("write", here.mr[10:20], remote=there.mr[100:].remote, wr_id=7)
    [wc] = take(here.cq)
    assert (wc.wr_id, wc.ok, wc.opcode, wc.qp_num) == (7, True, "RDMA_WRITE", here.qp.number)
    assert np.array_equal(there.array[100:110], here.array[10:20])
    assert not there.array[:100].any()
    assert not there.array[110:].any()
    assert there.cq.poll() == []


def test_write_gathers(pair):
    here, there = pair
    parts = [here.mr[0:4], here.mr[100:103], here.mr[50:55]]
    here.qp.post_send("write", parts, remote=there.mr.remote)
    take(here.cq)
    expected = [0, 1, 2, 3, 100, 101, 102, 50, 51, 52, 53, 54]
    assert there.array[: len(expected)].tolist() == expected


def test_write_with_imm(pair):
    here, there = pair
    there.qp.post_receive(wr_id=3)
    here.qp.post_send("write_with_imm", here.mr[0:64], remote=there.mr.remote, imm=0xDEADBEEF)
    [wc] = take(there.cq)
    assert (wc.wr_id, wc.opcode) == (3, "RECV_RDMA_WITH_IMM")
    assert (wc.imm_data, wc.byte_len) == (0xDEADBEEF, 64)
    assert np.array_equal(there.array[:64], here.array[:64])  # never before its data
    assert "imm_data=3735928559" in repr(wc)
    assert take(here.cq)[0].opcode == "RDMA_WRITE"


def test_read_scatters(pair):
    here, there = pair
    there.qp.post_send("read", [there.mr[0:5], there.mr[50:55]], remote=here.mr[20:].remote)
    [wc] = take(there.cq)
    assert (wc.opcode, wc.byte_len) == ("RDMA_READ", 10)
    assert there.array[:5].tolist() == [20, 21, 22, 23, 24]
    assert there.array[50:55].tolist() == [25, 26, 27, 28, 29]


def test_inline_write_copies_while_posting(pair):
    here, there = pair
    here.array[:8] = 7
    here.qp.post_send("write", here.mr[0:8], remote=there.mr.remote, inline=True)
    here.array[:8] = 9
    take(here.cq)
    assert there.array[:8].tolist() == [7] * 8


def test_atomics(pair):
    here, there = pair
    counter = there.array[:8].view(np.uint64)
    old = here.array[:8].view(np.uint64)
    counter[0] = 40
    here.qp.post_send("fetch_add", here.mr[0:8], remote=there.mr.remote, add=2)
    assert take(here.cq)[0].opcode == "FETCH_ADD"
    assert (old[0], counter[0]) == (40, 42)
    here.qp.post_send("compare_swap", here.mr[0:8], remote=there.mr.remote, compare=42, swap=5)
    assert take(here.cq)[0].opcode == "COMP_SWAP"
    assert (old[0], counter[0]) == (42, 5)
    here.qp.post_send("compare_swap", here.mr[0:8], remote=there.mr.remote, compare=42, swap=6)
    take(here.cq)
    assert (old[0], counter[0]) == (5, 5)
    here.qp.post_send("fetch_add", here.mr[0:8], remote=there.mr.remote, add=-6)
    take(here.cq)
    assert counter[0] == 2**64 - 1


def test_fenced_write_sees_what_the_read_brought(pair):
    here, there = pair
    there.array[:16] = 77
    chain = [
        verbs.SendRequest("read", here.mr[0:16], remote=there.mr[0:].remote, signaled=False),
        verbs.SendRequest("write", here.mr[0:16], remote=there.mr[64:].remote, fence=True),
    ]
    here.qp.post_many(chain)
    take(here.cq)
    assert there.array[64:80].tolist() == [77] * 16


def test_send_and_receive(pair):
    here, there = pair
    there.qp.post_receive(there.mr[0:100], wr_id=1)
    there.qp.post_receive(there.mr[100:200], wr_id=2)
    here.qp.post_send("send", here.mr[0:50])
    here.qp.post_send("send_with_imm", here.mr[0:30], imm=9)
    first, second = take(there.cq, 2)
    assert (first.wr_id, first.opcode, first.byte_len, first.imm_data) == (1, "RECV", 50, None)
    assert (second.wr_id, second.byte_len, second.imm_data) == (2, 30, 9)
    assert np.array_equal(there.array[:50], here.array[:50])
    assert not there.array[50:100].any()
    assert np.array_equal(there.array[100:130], here.array[:30])


def test_send_waits_for_a_receive(pair):
    here, there = pair
    here.qp.post_send("send", here.mr[0:8])
    assert here.cq.poll() == []
    there.qp.post_receive(there.mr)
    assert take(there.cq)[0].byte_len == 8
    assert take(here.cq)[0].ok


def test_chain_completes_in_order_with_one_signal(pair):
    here, there = pair
    chain = [
        verbs.SendRequest(
            "write", here.mr[i : i + 1], remote=there.mr[i:].remote, wr_id=i, signaled=i == 15
        )
        for i in range(16)
    ]
    here.qp.post_many(chain)
    [wc] = take(here.cq)
    assert wc.wr_id == 15
    assert np.array_equal(there.array[:16], here.array[:16])
    assert here.cq.poll() == []
    assert "unsignaled" in repr(chain[0])


def test_full_queue_says_which_request_was_not_taken(opened):
    here, _ = connect(make_side(opened, send_depth=8), make_side(opened))
    depth = here.qp.options["send_depth"]
    sends = [verbs.SendRequest("send", here.mr[0:1]) for _ in range(depth + 3)]
    with pytest.raises(zh.VerbsError, match=f"request {depth} of {depth + 3} .* queue is full"):
        here.qp.post_many(sends)  # nobody receives, so none of them ends


IMPATIENT = {"timeout": 10, "retries": 2, "rnr_retries": 1, "rnr_timer": 1}


@pytest.fixture
def impatient(opened):
    return connect(make_side(opened, **IMPATIENT), make_side(opened, **IMPATIENT))


def wrong_rkey(here: Side, there: Side) -> None:
    here.qp.post_send("write", here.mr[0:8], remote=(there.mr.address, there.mr.rkey ^ 1))


def write_beyond(here: Side, there: Side) -> None:
    here.qp.post_send("write", here.mr[0:16], remote=there.mr[NBYTES - 8 :].remote)


def read_beyond(here: Side, there: Side) -> None:
    here.qp.post_send("read", here.mr[0:16], remote=there.mr[NBYTES - 8 :].remote)


def revoked(here: Side, there: Side) -> None:
    remote = there.mr.remote
    there.mr.close()
    here.qp.post_send("write", here.mr[0:8], remote=remote)


def access_not_given(here: Side, there: Side) -> None:
    readable = there.pd.register(there.array, access=Access.REMOTE_READ)
    here.qp.post_send("write", here.mr[0:8], remote=readable.remote)


def nobody_receives(here: Side, there: Side) -> None:
    here.qp.post_send("send", here.mr[0:8])


def to_a_reset_queue_pair(here: Side, there: Side) -> None:
    there.qp.reset()
    here.qp.post_send("write", here.mr[0:8], remote=there.mr.remote)


def to_a_broken_queue_pair(here: Side, there: Side) -> None:
    there.qp.error()
    here.qp.post_send("write", here.mr[0:8], remote=there.mr.remote)


def through_a_broken_queue_pair(here: Side, there: Side) -> None:
    here.qp.error()
    here.qp.post_send("write", here.mr[0:8], remote=there.mr.remote)


STATUSES = {
    wrong_rkey: "REM_ACCESS_ERR",
    write_beyond: "REM_ACCESS_ERR",
    read_beyond: "REM_ACCESS_ERR",
    revoked: "REM_ACCESS_ERR",
    access_not_given: "REM_ACCESS_ERR",
    nobody_receives: "RNR_RETRY_EXC_ERR",
    to_a_reset_queue_pair: "RETRY_EXC_ERR",
    to_a_broken_queue_pair: "RETRY_EXC_ERR",
    through_a_broken_queue_pair: "WR_FLUSH_ERR",
}


@pytest.mark.parametrize("post", STATUSES)
def test_what_fails_says_how_and_writes_nothing(impatient, post):
    here, there = impatient
    post(here, there)
    assert take_error(here).status == f"IBV_WC_{STATUSES[post]}"
    assert not there.array.any()


def status_of(device: str, usual: str, soft_roce: str) -> str:
    """Linux's Soft-RoCE words a few statuses otherwise than adapters do (drivers/infiniband/sw/rxe)."""
    return soft_roce if device.startswith("rxe") else usual


def test_local_region_of_another_domain(pair, opened, device):
    here, there = pair
    stranger = opened.pd().register(here.array)
    here.qp.post_send("write", stranger[0:8], remote=there.mr.remote)
    expected = status_of(device, "IBV_WC_LOC_PROT_ERR", soft_roce="IBV_WC_WR_FLUSH_ERR")
    assert take_error(here).status == expected
    assert not there.array.any()


def test_message_longer_than_the_receive(pair, device):
    here, there = pair
    there.qp.post_receive(there.mr[0:8])
    here.qp.post_send("send", here.mr[0:9])
    expected = status_of(device, "IBV_WC_LOC_LEN_ERR", soft_roce="IBV_WC_LOC_QP_OP_ERR")
    assert take_error(there).status == expected
    expected = status_of(device, "IBV_WC_REM_INV_REQ_ERR", soft_roce="IBV_WC_REM_OP_ERR")
    assert take_error(here).status == expected


def test_misaligned_atomic(pair, device):
    here, there = pair
    request = verbs.SendRequest("fetch_add", here.mr[0:8], remote=there.mr[4:].remote, add=1)
    if device.startswith("rxe"):  # its provider in libibverbs looks before it posts
        with pytest.raises(zh.VerbsError, match="errno 22"):
            here.qp.post_many([request])
    else:
        here.qp.post_many([request])
        assert take_error(here).status == "IBV_WC_REM_INV_REQ_ERR"
    assert not there.array.any()


def test_error_state_flushes_what_is_posted(pair):
    here, _ = pair
    here.qp.post_receive(here.mr, wr_id=1)
    here.qp.post_receive(here.mr, wr_id=2)
    here.qp.error()
    flushed = take(here.cq, 2)
    assert [wc.wr_id for wc in flushed] == [1, 2]
    assert {wc.status for wc in flushed} == {"IBV_WC_WR_FLUSH_ERR"}
    here.qp.post_send("send", here.mr[0:1], wr_id=3)
    assert (take(here.cq)[0].wr_id, here.qp.state) == (3, "ERR")


@pytest.mark.parametrize(
    ("operation", "options", "words"),
    [
        ("multicast", {}, "choose one of write, "),
        ("write", {}, "write needs remote"),
        ("send", {"remote": (0, 0)}, "send takes no remote"),
        ("write_with_imm", {"remote": (0, 0)}, "write_with_imm needs imm"),
    ],
)
def test_request_is_checked_when_it_is_built(pair, operation, options, words):
    with pytest.raises(ValueError, match=words):
        verbs.SendRequest(operation, pair[0].mr, **options)


def test_local_bytes_are_regions_and_lie_inside_them(pair):
    here, there = pair
    nbytes = here.mr.nbytes
    with pytest.raises(TypeError, match=r"must be a MemoryRegion.* not ndarray.*register"):
        here.qp.post_send("write", np.zeros(3), remote=there.mr.remote)
    for beyond in (slice(0, nbytes + 1), slice(nbytes + 1, None), slice(-nbytes - 1, None)):
        with pytest.raises(IndexError, match=f"beyond the region of {nbytes} bytes"):
            here.mr[beyond]
    with pytest.raises(ValueError, match="step 1"):
        here.mr[0:8:2]


def test_queue_pairs_share_receives(opened):
    pd = opened.pd()
    cq = verbs.CompletionQueue(opened, 64)
    shared = verbs.SharedReceiveQueue(pd, 4)
    array = np.zeros(NBYTES, np.uint8)
    mr = pd.register(array)
    pairs = []
    for _ in range(2):
        here, qp = make_side(opened), verbs.QueuePair(pd, cq, srq=shared)
        qp.connect(here.qp.address())
        here.qp.connect(qp.address())
        pairs.append((here, qp))
    for number in range(4):
        shared.post_receive(mr[number * 100 : number * 100 + 100], wr_id=number)
    for number, (here, _) in enumerate([*pairs, *pairs]):
        here.array[:9] = 1 + number
        here.qp.post_send("send", here.mr[:9])
        take(here.cq)
    found = [(wc.wr_id, wc.byte_len, wc.qp_num) for wc in take(cq, 4)]
    assert found == [(n, 9, pairs[n % 2][1].number) for n in range(4)]
    assert [array[n * 100 : n * 100 + 10].tolist() for n in range(4)] == [
        [1 + n] * 9 + [0] for n in range(4)
    ]


def test_a_full_shared_receive_queue_refuses(opened):
    pd = opened.pd()
    shared, mr = verbs.SharedReceiveQueue(pd, 4), pd.register(np.zeros(NBYTES, np.uint8))

    def fill() -> None:
        for _ in range(10_000):  # the device may have rounded the depth up
            shared.post_receive(mr)

    with pytest.raises(zh.VerbsError, match=r"ibv_post_srq_recv.*the queue is full"):
        fill()
    with pytest.raises(zh.VerbsError, match=r"ibv_create_srq.*at most "):
        verbs.SharedReceiveQueue(pd, 2**31 - 1)
