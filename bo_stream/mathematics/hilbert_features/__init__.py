"""Mathematics of HSGP: a Gaussian process on sine functions of a box (MATHS 2.9)."""
