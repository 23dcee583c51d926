"""What a transfer gets that names memory which the peer has no right to."""

import os

import zerohop as zh

IWARP = os.environ.get("ZEROHOP_TEST_DEVICES", "").startswith("siw")
# enum ibv_wc_status, infiniband/verbs.h: REM_ACCESS_ERR. On iWARP the responder ends the connection, and siw's requester
# learns no reason: LOC_QP_OP_ERR for a request that is being sent, WR_FLUSH_ERR for one that was.
CODES = {2, 5} if IWARP else {10}


def is_refusal(error: zh.VerbsError, effect: str) -> bool:
    """effect: what a device says that knows what was refused."""
    return error.code in CODES and error.effect in ({"all", "some"} if IWARP else {effect})
