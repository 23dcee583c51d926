"""``python -m zerohop.examples.ray_actors``"""

from zerohop.examples.start import start

if __name__ == "__main__":
    start("ray_actors")
