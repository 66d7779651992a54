"""Active learning on a malaria raster: where to measure next."""
