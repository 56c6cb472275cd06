// Sequential minimal optimisation of many bags at once: one block solves one bag. batched_smo.py says what the arrays
// hold, and smo.py has the formulas and the rules, which are the same here.
//
// A thread owns the rows threadIdx.x + m * blockDim.x of its bag: only this thread changes their residuals. Reductions
// are maxima, and minima of row numbers among equal maxima, so the result does not depend on the number of threads.

constexpr float OUT_OF_REACH = 1e30f;
constexpr int BATCH = 4; // rows whose kernel values a thread reads at the same time
constexpr int MAX_WARPS = 32;

// The state of a coefficient, as bits.
constexpr unsigned char IS_NEGATIVE = 1, IS_POSITIVE = 2, AT_UPPER = 4, AT_LOWER = 8;

// The start of the shared memory of a block; n_features floats twice, rows of Kq, residuals and states follow.
struct Gains {
    float gain; // the largest gain, and the lowest row that has it
    unsigned row;
    float cost; // the smallest cost
};
struct Partner {
    float decrease; // the largest estimated decrease of the objective, and the lowest row that has it
    unsigned row;
    float kernel; // of this row with row i
};
struct Shared {
    Gains gains[MAX_WARPS];
    Partner partners[MAX_WARPS];
    float change; // of the coefficients in a step
    float tol;
    int most; // number of steps
    int bag;
    long long first; // the first row of the bag in the arrays of all bags
    int unused[58]; // up to 1,024 bytes, SHARED_HEADER in batched_smo.py
};
static_assert(sizeof(Shared) == 1024, "SHARED_HEADER in batched_smo.py");

// A row's number of its query in the upper half, and of its passage in the lower half.
template <class Pair> __device__ unsigned query_of(Pair pair) { return unsigned(pair >> (4 * sizeof(Pair))); }
template <class Pair> __device__ unsigned passage_of(Pair pair) {
    return unsigned(pair & ((Pair(1) << (4 * sizeof(Pair))) - 1));
}

// Keep a pointer that was computed from several values in a register: otherwise the compiler computes it anew for every
// row that a loop reads, which takes half of the instructions of the loop.
template <class T> __device__ const T* computed(const T* pointer) {
#ifndef CUDA_ON_CPU
    asm("" : "+l"(pointer));
#endif
    return pointer;
}

// The kernel of a bag, Kq * Kp plus the inner product of pair features.
template <class Pair> struct Kernel {
    const float *of_queries, *of_passages; // Gram matrices
    int n_queries, n_passages;
    unsigned n; // rows
    const Pair* pairs; // (n)
    const float* diagonal; // (n) of this bag, nullptr without features
    const float* features; // (n_features, n)
    int n_features;

    __device__ Kernel(const unsigned long long* grams, const int* sizes, unsigned n, long long first, int bag,
                      const Pair* pairs, const float* diagonal, const float* features, int n_features)
        : of_queries((const float*)grams[2 * bag]), of_passages((const float*)grams[2 * bag + 1]),
          n_queries(sizes[2 * bag]), n_passages(sizes[2 * bag + 1]), n(n), pairs(computed(pairs + first)),
          diagonal(diagonal), features(features + first * n_features), n_features(n_features) {}
    __device__ const float* query_row(Pair pair) const {
        return computed(of_queries + (unsigned long long)query_of(pair) * n_queries);
    }
    __device__ const float* passage_row(Pair pair) const {
        return computed(of_passages + (unsigned long long)passage_of(pair) * n_passages);
    }
};

__device__ float up(unsigned char state, float epsilon) {
    return state & AT_UPPER ? -OUT_OF_REACH : state & IS_NEGATIVE ? epsilon : -epsilon;
}
__device__ float low(unsigned char state, float epsilon) {
    return state & AT_LOWER ? OUT_OF_REACH : state & IS_POSITIVE ? -epsilon : epsilon;
}
__device__ unsigned char state_of(double beta, double bound) {
    return (beta < 0 ? IS_NEGATIVE : 0) | (beta > 0 ? IS_POSITIVE : 0) | (beta < bound ? 0 : AT_UPPER) |
           (beta > -bound ? 0 : AT_LOWER);
}

__device__ Gains larger(Gains a, Gains b) {
    bool second = b.gain > a.gain || (b.gain == a.gain && b.row < a.row);
    return {second ? b.gain : a.gain, second ? b.row : a.row, min(a.cost, b.cost)};
}
__device__ Partner larger(Partner a, Partner b) {
    return b.decrease > a.decrease || (b.decrease == a.decrease && b.row < a.row) ? b : a;
}
__device__ Gains from_lane(Gains value, int bits) {
    return {__shfl_xor_sync(ALL_LANES, value.gain, bits), __shfl_xor_sync(ALL_LANES, value.row, bits),
            __shfl_xor_sync(ALL_LANES, value.cost, bits)};
}
__device__ Partner from_lane(Partner value, int bits) {
    return {__shfl_xor_sync(ALL_LANES, value.decrease, bits), __shfl_xor_sync(ALL_LANES, value.row, bits),
            __shfl_xor_sync(ALL_LANES, value.kernel, bits)};
}

// Return the larger of the values of all threads, to all threads. The slots must not be in use.
template <class Value> __device__ Value largest(Value value, Value* slots) {
    int lanes = lanes_of_warp(), lane = threadIdx.x % lanes, warps = (blockDim.x + lanes - 1) / lanes;
    for (int bits = lanes / 2; bits; bits /= 2)
        value = larger(value, from_lane(value, bits));
    if (!lane)
        slots[threadIdx.x / lanes] = value;
    __syncthreads();
    value = slots[lane < warps ? lane : 0];
    for (int bits = lanes / 2; bits; bits /= 2)
        value = larger(value, from_lane(value, bits));
    return value;
}

// Read the pairs of a batch of rows, which begins at `start`; the last row is read for rows that do not exist.
template <class Pair>
__device__ __forceinline__ void read_pairs(const Kernel<Pair>& kernel, unsigned start, Pair (&pair)[BATCH]) {
#pragma unroll
    for (int r = 0; r < BATCH; r++)
        pair[r] = __ldg(kernel.pairs + min(start + r * blockDim.x, kernel.n - 1));
}

// Add the inner products of a vector with the pair features of a batch of rows.
template <class Pair>
__device__ __forceinline__ void add_feature_products(const Kernel<Pair>& kernel, unsigned start, const float* vector,
                                                     float (&values)[BATCH]) {
    for (int c = 0; c < kernel.n_features; c++) {
        const float* column = kernel.features + (unsigned long long)c * kernel.n;
#pragma unroll
        for (int r = 0; r < BATCH; r++)
            values[r] += vector[c] * __ldg(column + min(start + r * blockDim.x, kernel.n - 1));
    }
}

// Update the residuals for a step from rows i and j, and return the largest gain and the smallest cost. `difference`
// holds the features of row i minus those of row j.
template <class Pair, bool has_features>
__device__ Gains look(const Kernel<Pair>& kernel, unsigned i, unsigned j, float change, const float* difference,
                      const float* query_rows, float* error, const unsigned char* state, float epsilon) {
    const float *passage_i = kernel.passage_row(kernel.pairs[i]), *passage_j = kernel.passage_row(kernel.pairs[j]);
    const float* query_i = query_rows ? query_rows : kernel.query_row(kernel.pairs[i]);
    const float* query_j = query_rows ? computed(query_rows + kernel.n_queries) : kernel.query_row(kernel.pairs[j]);
    Gains best = {-4 * OUT_OF_REACH, 0xffffffffu, 4 * OUT_OF_REACH};
    for (unsigned start = threadIdx.x; start < kernel.n; start += BATCH * blockDim.x) {
        Pair pair[BATCH];
        float change_of_row[BATCH];
        read_pairs(kernel, start, pair);
#pragma unroll
        for (int r = 0; r < BATCH; r++) {
            unsigned query = query_of(pair[r]), passage = passage_of(pair[r]);
            change_of_row[r] =
                query_i[query] * __ldg(passage_i + passage) - query_j[query] * __ldg(passage_j + passage);
        }
        if (has_features)
            add_feature_products(kernel, start, difference, change_of_row);
#pragma unroll
        for (int r = 0; r < BATCH; r++) {
            unsigned k = start + r * blockDim.x;
            bool exists = k < kernel.n;
            k = exists ? k : start; // without a branch, the reads of several rows overlap
            float residual = error[k] - change * change_of_row[r];
            unsigned char of_row = state[k];
            float gain = residual + up(of_row, epsilon);
            if (exists)
                error[k] = residual;
            best.cost = min(best.cost, exists ? residual + low(of_row, epsilon) : best.cost);
            if (exists && gain > best.gain)
                best.gain = gain, best.row = k;
        }
    }
    return best;
}

// Return the row with the largest estimated decrease together with row i. `features_i` holds the features of row i.
template <class Pair, bool has_features>
__device__ Partner partner(const Kernel<Pair>& kernel, unsigned i, float gain, const float* features_i,
                           const float* query_rows, const float* error, const unsigned char* state, float epsilon) {
    const float* passage_i = kernel.passage_row(kernel.pairs[i]);
    const float* query_i = query_rows ? query_rows : kernel.query_row(kernel.pairs[i]);
    float diagonal_i = has_features ? kernel.diagonal[i] : 1;
    Partner best = {-1, 0xffffffffu, 0};
    for (unsigned start = threadIdx.x; start < kernel.n; start += BATCH * blockDim.x) {
        Pair pair[BATCH];
        float value[BATCH];
        read_pairs(kernel, start, pair);
#pragma unroll
        for (int r = 0; r < BATCH; r++)
            value[r] = query_i[query_of(pair[r])] * __ldg(passage_i + passage_of(pair[r]));
        if (has_features)
            add_feature_products(kernel, start, features_i, value);
#pragma unroll
        for (int r = 0; r < BATCH; r++) {
            unsigned k = min(start + r * blockDim.x, kernel.n - 1); // several threads may try the last row
            float distance = max(gain - (error[k] + low(state[k], epsilon)), 0.0f);
            float curvature = diagonal_i + (has_features ? __ldg(kernel.diagonal + k) : 1) - 2 * value[r];
            float decrease = __fdividef(distance * distance, max(curvature, 1e-12f));
            if (decrease > best.decrease)
                best = {decrease, k, value[r]};
        }
    }
    return best;
}

// Copy the row of Kq of a row of the bag to shared memory, unless it has no room there. A warp reads it at 32 places
// that are far from each other, which takes shared memory a fraction of the time that the first-level cache takes.
template <class Pair> __device__ void copy_query_row(const Kernel<Pair>& kernel, unsigned row, float* copy) {
    const float* query = kernel.query_row(kernel.pairs[row]);
    for (int c = threadIdx.x; copy && c < kernel.n_queries; c += blockDim.x)
        copy[c] = __ldg(query + c);
}

// Take steps of the bag of this block. What a step reads once is in shared memory, and not in a register of each thread.
template <class Pair, bool has_features>
__device__ void take_steps(const Kernel<Pair>& kernel, float* query_rows, float* error, unsigned char* state,
                           const double* bounds, double* betas, float epsilon, long long* steps, float* violations) {
    extern __shared__ unsigned char dynamic_shared[];
    Shared* shared = (Shared*)dynamic_shared;
    float *features_i = (float*)(shared + 1), *difference = features_i + kernel.n_features;
    for (unsigned k = threadIdx.x; k < kernel.n; k += blockDim.x)
        state[k] = state_of(betas[shared->first + k], bounds[shared->first + k]);
    for (int c = threadIdx.x; has_features && c < kernel.n_features; c += blockDim.x)
        difference[c] = 0;
    for (int c = threadIdx.x; query_rows && c < 2 * kernel.n_queries; c += blockDim.x)
        query_rows[c] = 0;
    __syncthreads();
    unsigned i = 0, j = 0; // the first look has no step to add
    float change = 0;
    for (int step = 0;; step++) {
        Gains of_thread = look<Pair, has_features>(kernel, i, j, change, difference, query_rows, error, state, epsilon);
        Gains best = largest(of_thread, shared->gains);
        if (best.gain - best.cost < shared->tol || step == shared->most) {
            if (!threadIdx.x)
                steps[shared->bag] += step, violations[shared->bag] = best.gain - best.cost;
            return;
        }
        i = best.row;
        copy_query_row(kernel, i, query_rows);
        for (int c = threadIdx.x; has_features && c < kernel.n_features; c += blockDim.x)
            features_i[c] = kernel.features[(unsigned long long)c * kernel.n + i];
        __syncthreads();
        Partner other = largest(
            partner<Pair, has_features>(kernel, i, best.gain, features_i, query_rows, error, state, epsilon),
            shared->partners);
        j = other.row;
        copy_query_row(kernel, j, query_rows ? query_rows + kernel.n_queries : nullptr);
        for (int c = threadIdx.x; has_features && c < kernel.n_features; c += blockDim.x)
            difference[c] = features_i[c] - kernel.features[(unsigned long long)c * kernel.n + j];
        if (!threadIdx.x) {
            const double* bound = bounds + shared->first;
            double* beta = betas + shared->first;
            // A coefficient stops at 0, where its offset changes sign, or at its bound.
            double beta_i = beta[i], beta_j = beta[j], bound_i = bound[i], bound_j = bound[j];
            float ends = has_features ? kernel.diagonal[i] + kernel.diagonal[j] : 2;
            double curvature = max(double(ends) - 2 * double(other.kernel), 1e-12);
            double room_i = beta_i < 0 ? -beta_i : bound_i - beta_i, room_j = beta_j > 0 ? beta_j : bound_j + beta_j;
            double gap = best.gain - (error[j] + low(state[j], epsilon));
            double move = min(gap / curvature, min(room_i, room_j));
            beta_i = move == room_i ? (beta_i < 0 ? 0.0 : bound_i) : beta_i + move;
            beta_j = move == room_j ? (beta_j > 0 ? 0.0 : -bound_j) : beta_j - move;
            beta[i] = beta_i, beta[j] = beta_j;
            state[i] = state_of(beta_i, bound_i), state[j] = state_of(beta_j, bound_j);
            shared->change = float(move);
        }
        __syncthreads();
        change = shared->change;
    }
}

// Take up to `most` steps of the bag of this block, and add their number to `steps`. Of the bag, the rows i and j of Kq,
// and then residuals and states, are in shared memory if they fit its `shared_bytes`.
template <class Pair>
__device__ void take_steps_of_block(const int* bags, const unsigned long long* grams, const int* sizes,
                                    const long long* firsts, const int* lengths, const Pair* pairs,
                                    const float* diagonal, const float* features, int n_features, const double* bounds,
                                    double* betas, float* errors, unsigned char* states, float epsilon,
                                    const float* tols, const long long* limits, int most, int shared_bytes,
                                    long long* steps, float* violations) {
    extern __shared__ unsigned char dynamic_shared[];
    Shared* shared = (Shared*)dynamic_shared;
    int bag = bags[blockIdx.x], n = lengths[bag];
    long long first = firsts[bag];
    if (!threadIdx.x) {
        shared->tol = tols[bag], shared->most = int(min((long long)most, limits[bag] - steps[bag]));
        shared->bag = bag, shared->first = first;
    }
    __syncthreads();
    Kernel<Pair> kernel(grams, sizes, n, first, bag, pairs, n_features ? diagonal + first : nullptr, features,
                        n_features);
    float *error = errors + first, *query_rows = (float*)(shared + 1) + 2 * n_features;
    unsigned char* state = states + first;
    long long left = shared_bytes - (long long)sizeof(Shared) - 8 * n_features, of_queries = 8ll * kernel.n_queries;
    float* residuals = query_rows + (of_queries <= left ? 2 * kernel.n_queries : 0);
    query_rows = of_queries <= left ? query_rows : nullptr;
    bool is_shared = (query_rows ? of_queries : 0) + 5ll * n <= left;
    if (is_shared) {
        error = residuals, state = (unsigned char*)(error + n);
        for (int k = threadIdx.x; k < n; k += blockDim.x)
            error[k] = errors[first + k];
    }
    if (n_features)
        take_steps<Pair, true>(kernel, query_rows, error, state, bounds, betas, epsilon, steps, violations);
    else
        take_steps<Pair, false>(kernel, query_rows, error, state, bounds, betas, epsilon, steps, violations);
    if (is_shared)
        for (int k = threadIdx.x; k < n; k += blockDim.x)
            errors[shared->first + k] = error[k];
}

// Recompute the residuals of about `sample` rows of some bags from the labels, with sums in float64; write the bits of
// the largest difference of a bag to `drifts`, and the residuals to `errors` if `replaces`. A warp computes one row.
template <class Pair>
__device__ void recompute(const int* bags, int blocks_per_bag, const unsigned long long* grams, const int* sizes,
                          const long long* firsts, const int* lengths, const Pair* pairs, const float* features,
                          int n_features, const double* betas, const double* labels, int sample, bool replaces,
                          float* errors, int* drifts) {
    int bag = bags[blockIdx.x / blocks_per_bag], n = lengths[bag], stride = max(1, n / sample);
    long long first = firsts[bag];
    Kernel<Pair> kernel(grams, sizes, n, first, bag, pairs, nullptr, features, n_features);
    int lanes = lanes_of_warp(), lane = threadIdx.x % lanes, warps = blockDim.x / lanes;
    int warp = blockIdx.x % blocks_per_bag * warps + threadIdx.x / lanes;
    for (long long row = (long long)warp * stride; row < n; row += (long long)blocks_per_bag * warps * stride) {
        const float *of_query = kernel.query_row(kernel.pairs[row]), *of_passage = kernel.passage_row(kernel.pairs[row]);
        double sum = 0;
        for (int k = lane; k < n; k += lanes) {
            double beta = betas[first + k];
            if (beta == 0)
                continue;
            float value = of_query[query_of(kernel.pairs[k])] * of_passage[passage_of(kernel.pairs[k])];
            for (int c = 0; c < n_features; c++)
                value += kernel.features[(long long)c * n + row] * kernel.features[(long long)c * n + k];
            sum += beta * value;
        }
        sum = sum_of_warp(sum);
        if (!lane) {
            float residual = float(labels[first + row] - sum);
            // Floats that are not negative order as their bits do.
            atomicMax(drifts + bag, __float_as_int(fabsf(residual - errors[first + row])));
            if (replaces)
                errors[first + row] = residual;
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024)
take_steps_16(const int* bags, const unsigned long long* grams, const int* sizes, const long long* firsts,
              const int* lengths, const unsigned int* pairs, const float* diagonal, const float* features,
              int n_features, const double* bounds, double* betas, float* errors, unsigned char* states, float epsilon,
              const float* tols, const long long* limits, int most, int shared_bytes, long long* steps,
              float* violations) {
    take_steps_of_block(bags, grams, sizes, firsts, lengths, pairs, diagonal, features, n_features, bounds, betas,
                        errors, states, epsilon, tols, limits, most, shared_bytes, steps, violations);
}

extern "C" __global__ void __launch_bounds__(1024)
take_steps_32(const int* bags, const unsigned long long* grams, const int* sizes, const long long* firsts,
              const int* lengths, const unsigned long long* pairs, const float* diagonal, const float* features,
              int n_features, const double* bounds, double* betas, float* errors, unsigned char* states, float epsilon,
              const float* tols, const long long* limits, int most, int shared_bytes, long long* steps,
              float* violations) {
    take_steps_of_block(bags, grams, sizes, firsts, lengths, pairs, diagonal, features, n_features, bounds, betas,
                        errors, states, epsilon, tols, limits, most, shared_bytes, steps, violations);
}

extern "C" __global__ void __launch_bounds__(1024)
recompute_16(const int* bags, int blocks_per_bag, const unsigned long long* grams, const int* sizes,
             const long long* firsts, const int* lengths, const unsigned int* pairs, const float* features,
             int n_features, const double* betas, const double* labels, int sample, bool replaces, float* errors,
             int* drifts) {
    recompute(bags, blocks_per_bag, grams, sizes, firsts, lengths, pairs, features, n_features, betas, labels, sample,
              replaces, errors, drifts);
}

extern "C" __global__ void __launch_bounds__(1024)
recompute_32(const int* bags, int blocks_per_bag, const unsigned long long* grams, const int* sizes,
             const long long* firsts, const int* lengths, const unsigned long long* pairs, const float* features,
             int n_features, const double* betas, const double* labels, int sample, bool replaces, float* errors,
             int* drifts) {
    recompute(bags, blocks_per_bag, grams, sizes, firsts, lengths, pairs, features, n_features, betas, labels, sample,
              replaces, errors, drifts);
}
