"""``python -m zerohop.examples.weights``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("weights")
