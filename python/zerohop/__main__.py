"""``python -m zerohop`` is the ``zerohop`` command."""

from zerohop.cli import main

if __name__ == "__main__":
    main()
