// Sequential minimal optimisation of many bags at once: one block, or a cluster of blocks, solves one bag. batched_smo.py
// says what the arrays hold, and smo.py has the formulas and the rules, which are the same here.
//
// Each block of a cluster has a part of the rows, and thread t of it the rows t + m * blockDim.x of this part: only this
// thread changes their residuals, states and coefficients. Reductions are maxima, and minima of row numbers among equal
// maxima, so the result does not depend on the numbers of threads and of blocks.

// Sources begin with these definitions; each is compiled when it is first used (batched_smo.py).
#ifndef BLOCKS
#define BLOCKS 1 // that solve a bag
#define PAIR unsigned int // numbers of the query and of the passage of a row
#endif

constexpr float OUT_OF_REACH = 1e30f;
// The number of rows whose kernel values a thread reads at the same time. More would not fit its registers.
template <class Pair> constexpr int BATCH = sizeof(Pair) == 4 ? 4 : 2;
constexpr int MAX_WARPS = 32;
constexpr unsigned NO_ROW = 0xffffffffu;
constexpr int LEAST = -2147483647 - 1, MOST = 2147483647;

// The state of a coefficient, as bits.
constexpr unsigned char IS_NEGATIVE = 1, IS_POSITIVE = 2, AT_UPPER = 4, AT_LOWER = 8;

// Clusters: blocks that run at the same time, and write to each other's shared memory (compute capability 9.0).
#ifdef CUDA_ON_CPU
#define CLUSTER_OF(blocks)
#elif __CUDA_ARCH__ >= 900
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
__device__ __forceinline__ unsigned blocks_of_cluster() {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    return blocks;
}
__device__ __forceinline__ unsigned block_of_cluster() {
    unsigned block;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    return block;
}
__device__ __forceinline__ void wait_for_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void store_in_block(unsigned long long* address, unsigned block, unsigned long long value) {
    unsigned there, here = (unsigned)__cvta_generic_to_shared(address);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(value) : "memory");
}
__device__ __forceinline__ unsigned char* shared_of_block(unsigned char* shared) { return shared; }
#else
#define CLUSTER_OF(blocks)
__device__ __forceinline__ unsigned blocks_of_cluster() { return 1; }
__device__ __forceinline__ unsigned block_of_cluster() { return 0; }
__device__ __forceinline__ void wait_for_cluster() { __syncthreads(); }
__device__ __forceinline__ void store_in_block(unsigned long long* address, unsigned, unsigned long long value) {
    *address = value;
}
__device__ __forceinline__ unsigned char* shared_of_block(unsigned char* shared) { return shared; }
#endif

// Wait for all threads that solve the bag of this block.
__device__ __forceinline__ void wait_for_bag(unsigned n_blocks) {
    if (n_blocks > 1)
        wait_for_cluster();
    else
        __syncthreads();
}

// What a warp proposes for row i or for row j: the row with the largest key, and the lowest of such rows.
struct Candidate {
    int key; // a gain, or an estimated decrease of the objective, as an integer of the same order
    unsigned row;
    int cost; // the smallest cost, likewise
    unsigned unused;
    unsigned long long pair; // of the row
};
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
    const float* diagonal; // (n), nullptr without features
    const float* features; // (n_features, n)
    int n_features;

    __device__ Kernel(const unsigned long long* grams, const int* sizes, unsigned n, long long first, int bag,
                      const Pair* pairs, const float* diagonal, const float* features, int n_features)
        : of_queries((const float*)grams[2 * bag]), of_passages((const float*)grams[2 * bag + 1]),
          n_queries(sizes[2 * bag]), n_passages(sizes[2 * bag + 1]), n(n), pairs(pairs + first),
          diagonal(diagonal), features(features + first * n_features), n_features(n_features) {}
    __device__ const float* query_row(Pair pair) const {
        return computed(of_queries + (unsigned long long)query_of(pair) * n_queries);
    }
    __device__ const float* passage_row(Pair pair) const {
        return computed(of_passages + (unsigned long long)passage_of(pair) * n_passages);
    }
};

// The start of the shared memory of a block. Candidates for row i and for row j follow, of each block and warp. What a
// step reads once is here, and not in a register of each thread.
template <class Pair> struct Shared {
    Kernel<Pair> kernel;
    const double* bounds; // (n) of the bag
    double* betas; // (n)
    float *query_row, *features; // room for a row of Kq, unless there is none, and for the pair features of a row
    double room; // by which the coefficient of row i can rise
    double move; // of both coefficients in a step
    double beta, bound; // of row i, if this block has it
    float tol;
    int most; // number of steps
    unsigned n_blocks; // that solve the bag
};
static_assert(sizeof(Shared<unsigned>) == 144, "SHARED_HEADER in batched_smo.py");
static_assert(sizeof(Shared<unsigned long long>) == 144, "SHARED_HEADER in batched_smo.py");
static_assert(2 * MAX_WARPS * sizeof(Candidate) == 1536, "SHARED_CANDIDATES in batched_smo.py");

// The rows of a bag that a block has. Arrays are in shared memory if they fit, otherwise in that of the device.
template <class Pair> struct Rows {
    unsigned first, n; // the rows first to first + n - 1 of the bag
    const Pair* pairs; // (n)
    float *error, *kernel; // (n) residuals, and the kernel with row i
    unsigned char* state; // (n)

    __device__ bool has(unsigned row) const { return row - first < n; }
    __device__ bool is_of_thread(unsigned row) const {
        return has(row) && (row - first) % blockDim.x == threadIdx.x;
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

// An integer that has the same order as the float, and back.
__device__ int ordered(float value) {
    int bits = __float_as_int(value);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ float from_ordered(int key) { return __uint_as_float(unsigned(key ^ (key >> 31 & 0x7fffffff))); }

// Reduce the candidates of the lanes of a warp to the best one, with the smallest cost of all. Every lane gets it.
template <class Pair> __device__ __forceinline__ void reduce(int& key, unsigned& row, int& cost, Pair& pair) {
    int best = max_of_warp(key);
    cost = min_of_warp(cost);
    unsigned lowest = min_of_warp(key == best ? row : NO_ROW);
    // The row is that of one lane, or of several with the same pair.
    int source = __ffs(int(__ballot_sync(ALL_LANES, key == best && row == lowest))) - 1;
    pair = __shfl_sync(ALL_LANES, pair, source);
    key = best, row = lowest;
}

// Return the best candidate of all threads of the bag, to all of them. The slots must not be in use.
template <class Pair>
__device__ __forceinline__ void choose(int& key, unsigned& row, int& cost, Pair& pair, Candidate* slots,
                                       unsigned n_blocks) {
    unsigned lanes = lanes_of_warp(), lane = threadIdx.x % lanes, warps = (blockDim.x + lanes - 1) / lanes;
    reduce(key, row, cost, pair);
    Candidate* slot = slots + block_of_cluster() * MAX_WARPS + threadIdx.x / lanes;
    for (unsigned block = lane; block < n_blocks; block += lanes) // a warp has fewer lanes than blocks only on a CPU
        if (n_blocks > 1) {
            unsigned long long* words = (unsigned long long*)slot;
            store_in_block(words, block, (unsigned long long)row << 32 | unsigned(key));
            store_in_block(words + 1, block, unsigned(cost));
            store_in_block(words + 2, block, (unsigned long long)pair);
        } else {
            *slot = {key, row, cost, 0, (unsigned long long)pair};
        }
    wait_for_bag(n_blocks);
    key = LEAST, row = NO_ROW, cost = MOST;
    for (unsigned block = 0; block < n_blocks; block++) {
        Candidate other = slots[block * MAX_WARPS + (lane < warps ? lane : 0)];
        if (other.key > key || (other.key == key && other.row < row))
            key = other.key, row = other.row, pair = Pair(other.pair);
        cost = min(cost, other.cost);
    }
    reduce(key, row, cost, pair);
}

// Read the pairs of a batch of rows, which begins at `start`, and their values in a row of Kp; for rows that do not
// exist, those of the last row.
template <class Pair>
__device__ __forceinline__ void read_batch(const Rows<Pair>& rows, unsigned start, const float* passage_row,
                                           Pair (&pair)[BATCH<Pair>], float (&value)[BATCH<Pair>]) {
#pragma unroll
    for (int r = 0; r < BATCH<Pair>; r++)
        pair[r] = rows.pairs[min(start + r * blockDim.x, rows.n - 1)];
#pragma unroll
    for (int r = 0; r < BATCH<Pair>; r++)
        value[r] = passage_row ? __ldg(passage_row + passage_of(pair[r])) : 0;
}

// Complete the kernel values of a batch of rows: multiply by those of queries, and add the inner products of a vector
// with the pair features.
template <class Pair>
__device__ __forceinline__ void complete(const Kernel<Pair>& kernel, const Rows<Pair>& rows, unsigned start,
                                         const float* query_row, const float* vector, const Pair (&pair)[BATCH<Pair>],
                                         float (&value)[BATCH<Pair>]) {
#pragma unroll
    for (int r = 0; r < BATCH<Pair>; r++)
        value[r] *= query_row[query_of(pair[r])];
    for (int c = 0; c < kernel.n_features; c++) {
        const float* column = kernel.features + (unsigned long long)c * kernel.n + rows.first;
#pragma unroll
        for (int r = 0; r < BATCH<Pair>; r++)
            value[r] += vector[c] * __ldg(column + min(start + r * blockDim.x, rows.n - 1));
    }
}

// Copy a row of Kq to shared memory, if it has room there, and the features of a row of the bag. A warp reads the row at
// 32 places that are far from each other, which takes shared memory a fraction of the time that the first-level cache
// takes. Return the row of Kq.
template <class Pair>
__device__ __forceinline__ const float* copied_row(const Shared<Pair>* shared, unsigned row, Pair pair) {
    const Kernel<Pair>& kernel = shared->kernel;
    const float* query = kernel.query_row(pair);
    for (int c = threadIdx.x; shared->query_row && c < kernel.n_queries; c += blockDim.x)
        shared->query_row[c] = __ldg(query + c);
    for (int c = threadIdx.x; c < kernel.n_features; c += blockDim.x)
        shared->features[c] = kernel.features[(unsigned long long)c * kernel.n + row];
    return shared->query_row ? shared->query_row : query;
}

// Write a value to the same place in all blocks that solve the bag.
__device__ __forceinline__ void store_for_bag(double* address, double value, unsigned n_blocks) {
    for (unsigned block = 0; block < n_blocks; block++)
        if (n_blocks > 1)
            store_in_block((unsigned long long*)address, block, (unsigned long long)__double_as_longlong(value));
        else
            *address = value;
}

// By how much a coefficient can rise: it stops at 0, where its offset changes sign, or at its bound.
__device__ double room_above(double beta, double bound) { return beta < 0 ? -beta : bound - beta; }

// Lower the coefficient of row j as far as the rooms of both rows allow, and return by how much. `ends` is the sum of the
// kernels of both rows with themselves.
template <class Pair>
__device__ double lower(const Rows<Pair>& rows, const Shared<Pair>* shared, unsigned j, float gain, float ends,
                        float epsilon) {
    unsigned k = j - rows.first;
    double beta = shared->betas[j], bound = shared->bounds[j], room = room_above(-beta, bound);
    double curvature = max(double(ends) - 2 * double(rows.kernel[k]), 1e-12);
    double gap = gain - (rows.error[k] + low(rows.state[k], epsilon));
    double move = min(gap / curvature, min(shared->room, room));
    beta = move == room ? (beta > 0 ? 0.0 : -bound) : beta - move;
    shared->betas[j] = beta, rows.state[k] = state_of(beta, bound);
    return move;
}

// Raise the coefficient of row i.
template <class Pair> __device__ void raise(const Rows<Pair>& rows, const Shared<Pair>* shared, unsigned i) {
    double beta = shared->beta, bound = shared->bound, move = shared->move;
    beta = move == room_above(beta, bound) ? (beta < 0 ? 0.0 : bound) : beta + move;
    shared->betas[i] = beta, rows.state[i - rows.first] = state_of(beta, bound);
}

// Take steps of a bag, and return their number and, in `violation`, how far the solution is from an optimal one. Shared
// memory for a row has the row of Kq and the features of row i, and then those of row j.
template <class Pair>
__device__ int steps_of_block(const Rows<Pair>& rows, Shared<Pair>* shared, float epsilon, float& violation) {
    const Kernel<Pair>& kernel = shared->kernel;
    Candidate *for_i = (Candidate*)(shared + 1), *for_j = for_i + shared->n_blocks * MAX_WARPS;
    unsigned i = NO_ROW, j = NO_ROW;
    Pair pair_of_row = 0;
    float gain = 0, change = 0, diagonal_i = 1;
    for (int step = 0;; step++) {
        // Change both coefficients, update the residuals, and choose row i. Kernel values are read while the thread of
        // row j computes the change.
        bool changes = step > 0;
        const float *of_query = nullptr, *of_passage = nullptr;
        if (changes) {
            of_query = copied_row<Pair>(shared, j, pair_of_row);
            of_passage = kernel.passage_row(pair_of_row);
        }
        unsigned start = threadIdx.x;
        Pair pair[BATCH<Pair>];
        float value[BATCH<Pair>];
        read_batch(rows, start, of_passage, pair, value);
        if (changes) {
            if (rows.is_of_thread(j)) {
                float ends = diagonal_i + (kernel.diagonal ? kernel.diagonal[j] : 1);
                double move = lower(rows, shared, j, gain, ends, epsilon);
                store_for_bag(&shared->move, move, shared->n_blocks);
            }
            wait_for_bag(shared->n_blocks);
            change = float(shared->move);
            if (rows.is_of_thread(i))
                raise(rows, shared, i);
        }
        float best = -4 * OUT_OF_REACH, least = 4 * OUT_OF_REACH;
        unsigned row = NO_ROW;
        for (;;) {
            if (changes)
                complete<Pair>(kernel, rows, start, of_query, shared->features, pair, value);
#pragma unroll
            for (int r = 0; r < BATCH<Pair>; r++) {
                unsigned k = start + r * blockDim.x;
                bool exists = k < rows.n;
                k = min(k, rows.n - 1); // without a branch, the reads of several rows overlap
                float residual = rows.error[k];
                if (changes)
                    residual -= change * (rows.kernel[k] - value[r]);
                if (changes && exists)
                    rows.error[k] = residual;
                unsigned char state = rows.state[k];
                float of_row = residual + up(state, epsilon);
                least = min(least, exists ? residual + low(state, epsilon) : least);
                if (exists && of_row > best)
                    best = of_row, row = rows.first + k, pair_of_row = pair[r];
            }
            start += BATCH<Pair> * blockDim.x;
            if (start >= rows.n)
                break;
            read_batch(rows, start, of_passage, pair, value);
        }
        int key = ordered(best), cost = ordered(least);
        choose(key, row, cost, pair_of_row, for_i, shared->n_blocks);
        i = row, gain = from_ordered(key);
        violation = gain - from_ordered(cost);
        if (violation < shared->tol || step == shared->most)
            return step;

        // Choose row j: the largest second-order estimate of the decrease of the objective together with row i.
        of_query = copied_row<Pair>(shared, i, pair_of_row);
        of_passage = kernel.passage_row(pair_of_row);
        diagonal_i = kernel.diagonal ? kernel.diagonal[i] : 1;
        const float* diagonal = kernel.diagonal ? kernel.diagonal + rows.first : nullptr;
        start = threadIdx.x;
        read_batch(rows, start, of_passage, pair, value);
        if (rows.is_of_thread(i)) {
            shared->beta = shared->betas[i], shared->bound = shared->bounds[i];
            store_for_bag(&shared->room, room_above(shared->beta, shared->bound), shared->n_blocks);
        }
        __syncthreads(); // the row of Kq is copied
        best = -1, row = NO_ROW;
        for (;;) {
            complete<Pair>(kernel, rows, start, of_query, shared->features, pair, value);
#pragma unroll
            for (int r = 0; r < BATCH<Pair>; r++) {
                unsigned k = start + r * blockDim.x;
                bool exists = k < rows.n;
                k = min(k, rows.n - 1);
                float distance = max(gain - (rows.error[k] + low(rows.state[k], epsilon)), 0.0f);
                float curvature = diagonal_i + (diagonal ? __ldg(diagonal + k) : 1) - 2 * value[r];
                float decrease = __fdividef(distance * distance, max(curvature, 1e-12f));
                if (exists)
                    rows.kernel[k] = value[r];
                if (exists && decrease > best)
                    best = decrease, row = rows.first + k, pair_of_row = pair[r];
            }
            start += BATCH<Pair> * blockDim.x;
            if (start >= rows.n)
                break;
            read_batch(rows, start, of_passage, pair, value);
        }
        key = ordered(best), cost = 0;
        choose(key, row, cost, pair_of_row, for_j, shared->n_blocks);
        j = row;
    }
}

// Free shared memory of a block.
struct FreeMemory {
    unsigned char* next;
    long long left;

    // Return room for n values, which begins at a multiple of 8 bytes, or nullptr if there is none.
    template <class T> __device__ T* take(long long n) {
        long long bytes = (n * (long long)sizeof(T) + 7) / 8 * 8;
        if (bytes > left)
            return nullptr;
        T* values = (T*)next;
        next += bytes, left -= bytes;
        return values;
    }
};

// Take up to `most` steps of the bag of this block or cluster, and add their number to `steps`. A row of Kq, and of the
// rows of the block the residuals, states, kernel values and pairs are in shared memory as far as they fit its
// `shared_bytes`, in this order.
extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(1024)
take_steps(const int* bags, const unsigned long long* grams, const int* sizes, const long long* firsts,
           const int* lengths, const PAIR* pairs, const float* diagonal, const float* features, int n_features,
           const double* bounds, double* betas, float* errors, float* kernels, unsigned char* states, float epsilon,
           const float* tols, const long long* limits, int most, int shared_bytes, long long* steps,
           float* violations) {
    typedef PAIR Pair;
    extern __shared__ unsigned char dynamic_shared[];
    Shared<Pair>* shared = (Shared<Pair>*)shared_of_block(dynamic_shared);
    unsigned n_blocks = blocks_of_cluster(), block = block_of_cluster();
    int bag = bags[blockIdx.x / n_blocks];
    unsigned n = lengths[bag];
    if (!threadIdx.x) {
        const float* diagonals = n_features ? diagonal + firsts[bag] : nullptr;
        shared->kernel = Kernel<Pair>(grams, sizes, n, firsts[bag], bag, pairs, diagonals, features, n_features);
        shared->bounds = bounds + firsts[bag], shared->betas = betas + firsts[bag];
        shared->tol = tols[bag], shared->most = int(min((long long)most, limits[bag] - steps[bag]));
        shared->n_blocks = n_blocks;
    }
    __syncthreads();
    const Kernel<Pair>& kernel = shared->kernel;
    Rows<Pair> rows;
    rows.first = unsigned((unsigned long long)n * block / n_blocks);
    rows.n = unsigned((unsigned long long)n * (block + 1) / n_blocks) - rows.first;
    long long first = firsts[bag] + rows.first;

    long long header = sizeof(Shared<Pair>) + 2 * n_blocks * MAX_WARPS * sizeof(Candidate);
    FreeMemory room = {(unsigned char*)shared + header, shared_bytes - header};
    float* of_features = room.take<float>(n_features);
    float* query_row = room.take<float>(kernel.n_queries);
    if (!threadIdx.x)
        shared->features = of_features, shared->query_row = query_row;
    float* error = room.take<float>(rows.n);
    unsigned char* state = room.take<unsigned char>(rows.n);
    float* values = room.take<float>(rows.n);
    Pair* numbers = room.take<Pair>(rows.n);
    rows.error = error ? error : errors + first, rows.state = state ? state : states + first;
    rows.kernel = values ? values : kernels + first, rows.pairs = numbers ? numbers : kernel.pairs + rows.first;
    for (unsigned k = threadIdx.x; k < rows.n; k += blockDim.x) {
        rows.state[k] = state_of(betas[first + k], bounds[first + k]);
        if (error)
            error[k] = errors[first + k];
        if (numbers)
            numbers[k] = kernel.pairs[rows.first + k];
    }
    wait_for_bag(n_blocks); // all blocks of a cluster run, before one writes to the memory of another
    float violation;
    int taken = steps_of_block(rows, shared, epsilon, violation);
    if (!threadIdx.x && !block)
        steps[bag] += taken, violations[bag] = violation;
    for (unsigned k = threadIdx.x; error && k < rows.n; k += blockDim.x)
        errors[first + k] = error[k];
}

// Recompute the residuals of about `sample` rows of some bags from the labels, with sums in float64; write the bits of
// the largest difference of a bag to `drifts`, and the residuals to `errors` if `replaces`. A warp computes one row.
extern "C" __global__ void __launch_bounds__(1024)
recompute(const int* bags, int blocks_per_bag, const unsigned long long* grams, const int* sizes,
          const long long* firsts, const int* lengths, const PAIR* pairs, const float* features, int n_features,
          const double* betas, const double* labels, int sample, bool replaces, float* errors, int* drifts) {
    typedef PAIR Pair;
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
