"""What the project exists for: surrogates times acquisition functions, and maps of malaria."""
