// The best columns of each row of scores, by sorting one 64-bit key of score and number (hits.py).
//
// Every kernel is correct for any number of threads.

// A key rises with falling score, then with rising number. The bits of a positive float, read as an integer, rise with
// its value; those of a negative one fall. 0.0 and -0.0 have the same key. Only bits are compared, because CuPy lets the
// compiler take numbers below 2^-126 as zero (-ftz=true).
__device__ unsigned key_of_score(float score) {
    unsigned bits = __float_as_uint(score);
    bits = bits == 0x80000000u ? 0u : bits;
    unsigned rising = bits ^ (bits >> 31 ? 0x7fffffffu : 0u); // as a signed integer
    return ~rising;
}

__device__ float score_of_key(unsigned key) {
    unsigned rising = ~key;
    return __uint_as_float(rising ^ (rising >> 31 ? 0x7fffffffu : 0u));
}

// Makes the keys of some rows of scores (·, n): `parts` blocks for each row. With has_rows, key row i is of the row
// rows[i] of scores; with has_numbers, a column has the number numbers[row, column]; with has_places, a number is
// replaced by its place.
extern "C" __global__ void make_keys(const float* __restrict__ scores, const long long* __restrict__ numbers,
                                     int has_numbers, const int* __restrict__ rows, int has_rows,
                                     const unsigned* __restrict__ places, int has_places, long long n, int parts,
                                     long long* __restrict__ keys) {
    long long key_row = blockIdx.x / parts, row = has_rows ? rows[key_row] : key_row;
    for (long long column = blockIdx.x % parts * (long long)blockDim.x + threadIdx.x; column < n;
         column += parts * (long long)blockDim.x) {
        long long passage = has_numbers ? numbers[row * n + column] : column;
        unsigned number = passage < 0 ? 0u : has_places ? places[passage] : (unsigned)passage; // -1 has the score -inf
        unsigned long long key = (unsigned long long)key_of_score(scores[row * n + column]) << 32 | number;
        keys[key_row * n + column] = (long long)key;
    }
}

// Reads the first k of the sorted keys (·, n) of a row: a block for each row. A score of -inf gets the number -1. With
// has_rows, the results are of row rows[i]; with has_passages, a key has a place. tied[row] becomes 1 if one of the
// scores, above -inf, equals the next one of the row.
extern "C" __global__ void read_keys(const long long* __restrict__ keys, long long n, int k,
                                     const int* __restrict__ rows, int has_rows, const unsigned* __restrict__ passages,
                                     int has_passages, long long* __restrict__ numbers, float* __restrict__ scores,
                                     int* __restrict__ tied) {
    long long row = has_rows ? rows[blockIdx.x] : blockIdx.x;
    const long long* of_row = keys + blockIdx.x * n;
    for (int column = threadIdx.x; column < k; column += blockDim.x) {
        unsigned long long key = (unsigned long long)of_row[column];
        unsigned number = (unsigned)key, of_score = (unsigned)(key >> 32);
        float score = score_of_key(of_score);
        bool is_hit = score >= -3.402823466e38f; // above -inf
        numbers[row * k + column] = !is_hit ? -1LL : has_passages ? (long long)passages[number] : (long long)number;
        scores[row * k + column] = score;
        if (is_hit && column + 1 < n && (unsigned)((unsigned long long)of_row[column + 1] >> 32) == of_score)
            tied[row] = 1;
    }
}
