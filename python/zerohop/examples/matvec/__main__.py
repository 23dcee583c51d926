"""``python -m zerohop.examples.matvec``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("matvec")
