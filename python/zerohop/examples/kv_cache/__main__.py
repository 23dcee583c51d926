"""``python -m zerohop.examples.kv_cache``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("kv_cache")
