"""The closed vocabulary the built-in tasks speak; small enough that a tiny model can know every word."""

from __future__ import annotations

HE = ("Tom", "Ben", "Sam", "Max", "Leo", "Dan", "Jim", "Ian", "Bob", "Eli", "Guy", "Hal", "Roy", "Ned", "Pat", "Vic")
SHE = ("Ann", "Eva", "Mia", "Zoe", "Liz", "Sue", "Amy", "Kim", "Joy", "Ida", "Fay", "Una", "Wen", "Cat", "Oda", "Ria")
NAMES = tuple(sorted(HE + SHE))

THINGS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps")
PLACES = ("boxes", "bags", "jars", "trays")

ANIMALS = (
    "cat", "dog", "horse", "cow", "goat", "fox", "bear", "duck",
    "lion", "wolf", "mouse", "sheep", "frog", "crow", "hare", "pig",
)  # fmt: skip
FRUITS = ("apple", "pear", "plum", "grape", "lemon", "melon", "fig", "cherry")
COLOURS = ("red", "blue", "green", "black", "white", "pink", "grey", "brown")
TOOLS = ("hammer", "saw", "rope", "nail", "drill", "brush", "knife", "spade")
CATEGORIES = {"animals": ANIMALS, "fruits": FRUITS, "colours": COLOURS, "tools": TOOLS}

ADJECTIVES = ("small", "big", "old", "new", "happy", "quiet", "fast", "kind")
VERBS = ("sees", "likes", "finds", "wants", "draws", "hears", "follows", "needs")
OBJECTS = (
    "house", "tree", "river", "road", "lamp", "door", "boat", "chair",
    "bridge", "wall", "garden", "table", "clock", "tower", "window", "stone",
)  # fmt: skip
