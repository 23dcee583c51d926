"""``python -m zerohop.examples.osu``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("osu")
