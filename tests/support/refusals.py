"""What a transfer gets that names memory which the peer has no right to."""

import os

# enum ibv_wc_status, infiniband/verbs.h. On iWARP the responder ends the connection, and siw's requester learns no reason.
IWARP = os.environ.get("ZEROHOP_TEST_DEVICES", "").startswith("siw")
REMOTE_ACCESS = 5 if IWARP else 10  # IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_ACCESS_ERR


def refusal(effect: str) -> tuple[int, str]:
    """The code and the effect of the VerbsError. effect: where a status says what was refused."""
    return REMOTE_ACCESS, "all" if IWARP else effect
