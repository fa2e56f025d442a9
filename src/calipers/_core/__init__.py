"""Arguments, arrays, dtypes, libraries, threads and compilation, for all other packages."""
