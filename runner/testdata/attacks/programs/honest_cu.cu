long kernel(long n, long seed) { return (n * 31 + seed * 17) % 1000003; }
