"""``python -m zerohop.examples.jax_handoff``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("jax_handoff")
