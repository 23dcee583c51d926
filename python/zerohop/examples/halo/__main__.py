"""``python -m zerohop.examples.halo``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("halo")
