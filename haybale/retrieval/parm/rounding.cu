// Terms of sums on a device, rounded so that every partial sum is exact (formulas.py).
//
// Every kernel is correct for any number of threads.

// Writes the largest magnitude of each row (n, d), 0 without columns: a block for each row. Shared memory: a double for
// each thread.
extern "C" __global__ void largest_of_rows(const double* __restrict__ terms, long long d, double* __restrict__ out) {
    extern __shared__ unsigned char dynamic_shared[];
    double* largest = (double*)dynamic_shared;
    const double* row = terms + blockIdx.x * d;
    double most = 0;
    for (long long column = threadIdx.x; column < d; column += blockDim.x)
        most = fmax(most, fabs(row[column]));
    largest[threadIdx.x] = most;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        if (threadIdx.x % (2 * step) == 0 && threadIdx.x + step < blockDim.x)
            largest[threadIdx.x] = fmax(largest[threadIdx.x], largest[threadIdx.x + step]);
        __syncthreads();
    }
    if (!threadIdx.x)
        out[blockIdx.x] = largest[0];
}

// Adds the shift of each row to its terms and subtracts it again: a block for each row.
extern "C" __global__ void round_rows(const double* __restrict__ terms, const double* __restrict__ shift, long long d,
                                      double* __restrict__ out) {
    double of_row = shift[blockIdx.x];
    for (long long place = blockIdx.x * d + threadIdx.x; place < (blockIdx.x + 1LL) * d; place += blockDim.x) {
        double shifted = terms[place] + of_row;
        out[place] = shifted - of_row;
    }
}
