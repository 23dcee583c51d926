"""Inside a guest: executes the pieces of Python that interpreter.py sends, one JSON line each.

`answer` in a piece's code, if it sets one, is sent back; `say(text)` sends word before it ends.
"""

import json
import sys
import time
from typing import Any


def tell(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    tell(said=text)


def main() -> None:
    names: dict[str, Any] = {"say": say}
    tell(said="ready")
    for line in sys.stdin:
        names.pop("answer", None)
        started = time.monotonic()
        try:
            exec(json.loads(line), names)  # noqa: S102  that is what it is for
        except Exception as error:  # noqa: BLE001  the test on the host judges it
            failure = {"kind": type(error).__name__}
            failure |= {name: getattr(error, name, None) for name in ("code", "effect")}
            seconds = time.monotonic() - started
            tell(failed={**failure, "message": str(error), "seconds": seconds})
        else:
            tell(done=names.get("answer"), seconds=time.monotonic() - started)


if __name__ == "__main__":
    main()
