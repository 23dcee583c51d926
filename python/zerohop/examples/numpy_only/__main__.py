"""``python -m zerohop.examples.numpy_only``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("numpy_only")
