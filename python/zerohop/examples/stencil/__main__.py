"""``python -m zerohop.examples.stencil``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("stencil")
