// Exact search on a device: scores in TF32 are filtered by a running threshold, and the survivors are ranked exactly.
//
// A key holds a score and a passage; the best passage has the smallest key. The buffer of a query has `capacity` keys.
// One block works for one query, so its buffer needs no locks, and what it holds does not depend on the order of
// threads. Blocks have one thread or whole warps.

typedef unsigned long long Key;

// The states of a query, which are bits.
constexpr int TIED = 1;         // equal scores among the first k + 1
constexpr int CROWDED = 2;      // more passages than half of the buffer cannot be told from the k best by scores in TF32
constexpr int TOO_LARGE = 4;    // products may exceed float32
constexpr int OUT_OF_BOUND = 8; // a score in TF32 differs from the exact one by more than its bound

constexpr int BINS = 256;
constexpr int READ_AT_ONCE = 4; // scores that a thread reads before it compares them

struct alignas(8) Selection { // in shared memory
    unsigned histogram[BINS];
    unsigned digit;
    unsigned rank;
    int count;
    int kept;
    int is_tied;
    int is_out_of_bound;
    float floor;
};

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// CuPy compiles with -ftz=true: in float32, numbers below 2^-126 count as zero. These two conversions keep them.
#ifndef CUDA_ON_CPU
__device__ __forceinline__ double float32_to_float64(float value) {
    double result;
    asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(value));
    return result;
}
__device__ __forceinline__ float float64_to_float32(double value) {
    float result;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(value));
    return result;
}
#endif

// Map a score to bits that fall as it rises; 0.0 and -0.0 have the same bits.
__device__ __forceinline__ unsigned falling_bits(float score) {
    unsigned bits = __float_as_uint(score);
    bits = bits == 0x80000000u ? 0u : bits;
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

__device__ __forceinline__ float score_of(unsigned falling) {
    return __uint_as_float(falling & 0x80000000u ? falling : ~falling & 0x7fffffffu);
}

__device__ __forceinline__ Key key_of(float score, unsigned passage) {
    return (Key)falling_bits(score) << 32 | passage;
}

// Sum the products of two vectors in float64, one warp for both. All its lanes get the sum.
__device__ double inner_product(const float* __restrict__ left, const float* __restrict__ right, int width) {
    int lanes = lanes_of_warp();
    double sum = 0;
#pragma unroll 8
    for (int k = threadIdx.x % lanes; k < width; k += lanes)
        sum += float32_to_float64(left[k]) * float32_to_float64(right[k]);
    return sum_of_warp(sum);
}

// Append the keys of the lanes that want it. All lanes of a warp take part.
__device__ __forceinline__ void append(bool is_wanted, Key key, Key* keys, int* count) {
    unsigned lane = threadIdx.x % warpSize, votes = __ballot_sync(ALL_LANES, is_wanted);
    int first = 0;
    if (!lane && votes)
        first = atomicAdd(count, __popc(votes));
    first = __shfl_sync(ALL_LANES, first, 0);
    if (is_wanted)
        keys[first + __popc(votes & ((1u << lane) - 1))] = key;
}

// Return the bits of the k-th best score among `count` keys, by four passes over digits of 8 bits.
__device__ unsigned kth_best(const Key* keys, int count, int k, Selection* shared) {
    int lanes = lanes_of_warp();
    unsigned prefix = 0, rank = k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
            shared->histogram[bin] = 0;
        __syncthreads();
        unsigned higher_digits = shift == 24 ? 0 : ALL_LANES << (shift + 8);
        for (int first = 0; first < count; first += blockDim.x) {
            int j = first + threadIdx.x;
            unsigned bits = j < count ? (unsigned)(keys[j] >> 32) : 0, digit = bits >> shift & (BINS - 1);
            bool is_counted = j < count && (bits & higher_digits) == prefix;
            // Most scores share their first digit, so the lanes that agree with the first one are counted at once.
            unsigned common = __shfl_sync(ALL_LANES, digit, 0);
            unsigned votes = __ballot_sync(ALL_LANES, is_counted && digit == common);
            if (threadIdx.x % warpSize == 0 && votes)
                atomicAdd(&shared->histogram[common], (unsigned)__popc(votes));
            if (is_counted && digit != common)
                atomicAdd(&shared->histogram[digit], 1u);
        }
        __syncthreads();
        if (threadIdx.x < lanes) { // each lane takes some bins; one lane holds the bin of the k-th score
            int bins = BINS / lanes, bin = threadIdx.x * bins;
            unsigned sum = 0;
            for (int b = 0; b < bins; b++)
                sum += shared->histogram[bin + b];
            unsigned up_to_here = sum;
            for (int distance = 1; distance < lanes; distance *= 2) {
                unsigned before = __shfl_up_sync(ALL_LANES, up_to_here, distance);
                up_to_here += threadIdx.x >= distance ? before : 0;
            }
            unsigned before = up_to_here - sum;
            if (before < rank && rank <= up_to_here) {
                while (before + shared->histogram[bin] < rank)
                    before += shared->histogram[bin++];
                shared->digit = bin;
                shared->rank = rank - before;
            }
        }
        __syncthreads();
        prefix |= shared->digit << shift;
        rank = shared->rank;
    }
    return prefix;
}

// Drop the keys whose exact scores are provably below the k-th best exact score.
//
// The k best scores in TF32 are at least T, so their exact scores are at least T - bound. A passage below
// T - 2 * bound has an exact score below that. The margin is for the rounding of this sum.
__device__ void compact(Key* keys, int k, double bound, Selection* shared) {
    int count = shared->count;
    double lowest = (double)score_of(kth_best(keys, count, k, shared)) - 2 * bound * (1 + 0x1p-20);
    float floor = -0x1p-126f; // below this magnitude, numbers of float32 count as zero
    if (!(fabs(lowest) < 0x1p-126)) {
        floor = (float)lowest;
        if ((double)floor > lowest)
            floor = nextafterf(floor, -infinity());
    }
    floor = max(floor, shared->floor);
    unsigned last = falling_bits(floor);
    __syncthreads();
    if (!threadIdx.x)
        shared->kept = 0, shared->floor = floor;
    __syncthreads();
    for (int first = 0; first < count; first += blockDim.x) {
        int j = first + threadIdx.x;
        Key key = j < count ? keys[j] : 0;
        __syncthreads(); // the keys are read before others are written over them
        append(j < count && (unsigned)(key >> 32) <= last, key, keys, &shared->kept);
    }
    __syncthreads();
    if (!threadIdx.x)
        shared->count = shared->kept;
    __syncthreads();
}

// Sort `count` keys; `room` is a power of two, at least `count`.
__device__ void sort_keys(Key* keys, int count, int room) {
    for (int j = count + threadIdx.x; j < room; j += blockDim.x)
        keys[j] = ~(Key)0;
    __syncthreads();
    for (int size = 2; size <= room; size *= 2)
        for (int distance = size / 2; distance; distance /= 2) {
            for (int pair = threadIdx.x; pair < room / 2; pair += blockDim.x) {
                int low = 2 * pair - (pair & (distance - 1)), high = low + distance;
                Key first = keys[low], second = keys[high];
                if ((first > second) == !(low & size))
                    keys[low] = second, keys[high] = first;
            }
            __syncthreads();
        }
}

__device__ __forceinline__ int power_of_two_from(int count) {
    int room = 1;
    while (room < count)
        room *= 2;
    return room;
}

// Find the largest squared length of `size` vectors. The bits of positive numbers rise with their values.
extern "C" __global__ void __launch_bounds__(256) largest_square(
    const float* __restrict__ vectors, long long size, int width, unsigned long long* __restrict__ bits_of_largest) {
    int lanes = lanes_of_warp();
    long long warps = (long long)gridDim.x * (blockDim.x / lanes);
    double largest = 0;
    for (long long k = (long long)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes; k < size; k += warps)
        largest = max(largest, inner_product(vectors + k * width, vectors + k * width, width));
    if (threadIdx.x % lanes == 0)
        atomicMax(bits_of_largest, (unsigned long long)__double_as_longlong(largest));
}

// Score candidates exactly. A negative candidate gets -inf.
extern "C" __global__ void __launch_bounds__(256) inner_products(
    const float* __restrict__ queries, const float* __restrict__ vectors, const long long* __restrict__ candidates,
    int width, long long depth, long long size, float* __restrict__ scores) {
    int lanes = lanes_of_warp();
    long long warps = (long long)gridDim.x * (blockDim.x / lanes);
    long long k = (long long)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    for (; k < size; k += warps) {
        long long candidate = candidates[k];
        float score = -infinity();
        if (candidate >= 0)
            score = float64_to_float32(inner_product(queries + k / depth * width, vectors + candidate * width, width));
        if (threadIdx.x % lanes == 0)
            scores[k] = score;
    }
}

// Compute the bound on the errors of each query's scores, and begin with an empty buffer.
//
// The bound is relative * |q| * longest + fixed + per_length * |q|. A query without a floor below infinity is finished.
extern "C" __global__ void __launch_bounds__(256) begin_search(
    const float* __restrict__ queries, int n_queries, int width, double longest, double relative, double fixed,
    double per_length, double largest, double* __restrict__ bounds, float* __restrict__ floors, int* __restrict__ counts,
    int* __restrict__ states) {
    int lanes = lanes_of_warp();
    int warps = gridDim.x * (blockDim.x / lanes), query = blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    for (; query < n_queries; query += warps) {
        const float* vector = queries + (long long)query * width;
        double length = sqrt(inner_product(vector, vector, width));
        if (threadIdx.x % lanes)
            continue;
        bool is_too_large = !(length * longest < largest);
        bounds[query] = relative * length * longest + fixed + per_length * length;
        floors[query] = length > 0 && !is_too_large ? -infinity() : infinity();
        counts[query] = 0;
        states[query] = is_too_large ? TOO_LARGE : 0;
    }
}

// Append the passages of a tile whose scores reach the floor of their query. When more than half of the buffer is full,
// the floor rises and the buffer is compacted; half of the buffer is read at once, so that it cannot overflow.
//
// `excluded` (n_queries, 2) are the first excluded passage of each query and the one after the last.
extern "C" __global__ void __launch_bounds__(1024) keep_best(
    const float* __restrict__ scores, int row_step, int n_columns, unsigned first_passage, int k, int capacity,
    const long long* __restrict__ excluded, const double* __restrict__ bounds, float* __restrict__ floors,
    int* __restrict__ counts, int* __restrict__ states, unsigned long long* __restrict__ keys_of_all) {
    extern __shared__ unsigned char dynamic_shared[];
    Selection* shared = (Selection*)dynamic_shared;
    long long query = blockIdx.x;
    int half = capacity / 2;
    float floor = floors[query];
    if (floor == infinity())
        return;
    const float* row = scores + query * row_step;
    Key* keys = keys_of_all + query * capacity;
    long long first_excluded = excluded[2 * query], end_excluded = excluded[2 * query + 1];
    if (!threadIdx.x)
        shared->count = counts[query], shared->floor = floor;
    __syncthreads();
    for (int start = 0; start < n_columns; start += half) {
        int end = min(start + half, n_columns);
        floor = shared->floor;
        for (int first = start; first < end; first += READ_AT_ONCE * blockDim.x) {
            float values[READ_AT_ONCE];
            bool any = false;
#pragma unroll
            for (int part = 0; part < READ_AT_ONCE; part++) {
                int column = first + part * blockDim.x + threadIdx.x;
                values[part] = column < end ? row[column] : -infinity();
                any |= column < end && values[part] >= floor;
            }
            if (!__any_sync(ALL_LANES, any))
                continue;
#pragma unroll
            for (int part = 0; part < READ_AT_ONCE; part++) {
                int column = first + part * blockDim.x + threadIdx.x;
                unsigned passage = first_passage + column;
                bool is_excluded = passage >= first_excluded && passage < end_excluded;
                bool is_wanted = column < end && values[part] >= floor && !is_excluded;
                append(is_wanted, key_of(values[part], passage), keys, &shared->count);
            }
        }
        __syncthreads();
        if (shared->count > half)
            compact(keys, k, bounds[query], shared);
        bool is_crowded = shared->count > half;
        __syncthreads(); // the count is read before it changes
        if (is_crowded) {
            if (!threadIdx.x)
                floors[query] = infinity(), counts[query] = 0, states[query] |= CROWDED;
            return;
        }
    }
    if (!threadIdx.x)
        counts[query] = shared->count, floors[query] = shared->floor;
}

// Score the survivors exactly and write the k best, by falling score and rising number. Their keys stay in order.
extern "C" __global__ void __launch_bounds__(512, 2) rank_exactly(
    const float* __restrict__ queries, const float* __restrict__ vectors, int width, int k, int capacity, int shared_keys,
    const double* __restrict__ bounds, const float* __restrict__ floors, int* __restrict__ counts,
    int* __restrict__ states, unsigned long long* __restrict__ keys_of_all, long long* __restrict__ passages,
    float* __restrict__ scores) {
    extern __shared__ unsigned char dynamic_shared[];
    Selection* shared = (Selection*)dynamic_shared;
    long long query = blockIdx.x;
    Key* keys = keys_of_all + query * capacity;
    if (!threadIdx.x)
        shared->count = counts[query], shared->floor = floors[query], shared->is_tied = shared->is_out_of_bound = 0;
    __syncthreads();
    if (shared->count > k)
        compact(keys, k, bounds[query], shared);
    int count = shared->count, lanes = lanes_of_warp();
    for (int j = threadIdx.x / lanes; j < count; j += blockDim.x / lanes) {
        Key key = keys[j];
        unsigned passage = (unsigned)key;
        float proposed = score_of((unsigned)(key >> 32));
        double product = inner_product(queries + query * width, vectors + (long long)passage * width, width);
        float exact = float64_to_float32(product);
        if (threadIdx.x % lanes == 0) {
            keys[j] = key_of(exact, passage);
            if (!(fabs(proposed - float32_to_float64(exact)) <= bounds[query]))
                shared->is_out_of_bound = 1; // threads that write it write the same
        }
    }
    __syncthreads();
    int room = power_of_two_from(count);
    Key* sorted = room <= shared_keys ? (Key*)(shared + 1) : keys;
    if (sorted != keys)
        for (int j = threadIdx.x; j < count; j += blockDim.x)
            sorted[j] = keys[j];
    sort_keys(sorted, count, room);
    for (int j = threadIdx.x; j < max(count, k); j += blockDim.x) {
        if (j < count)
            keys[j] = sorted[j];
        if (j < k) {
            passages[query * k + j] = j < count ? (long long)(sorted[j] & 0xffffffffu) : -1;
            scores[query * k + j] = j < count ? score_of((unsigned)(sorted[j] >> 32)) : -infinity();
        }
    }
    for (int j = threadIdx.x; j < min(k, count - 1); j += blockDim.x)
        if (sorted[j] >> 32 == sorted[j + 1] >> 32)
            shared->is_tied = 1;
    __syncthreads();
    if (!threadIdx.x) {
        counts[query] = count;
        states[query] |= (shared->is_tied ? TIED : 0) | (shared->is_out_of_bound ? OUT_OF_BOUND : 0);
    }
}

// Order equal scores by the places of their passages, in the queries that have some.
extern "C" __global__ void __launch_bounds__(512) order_ties(
    int k, int capacity, int shared_keys, const int* __restrict__ counts, const int* __restrict__ states,
    const unsigned* __restrict__ places, const unsigned* __restrict__ passages_by_place, unsigned long long* __restrict__ keys_of_all,
    long long* __restrict__ passages) {
    extern __shared__ unsigned char dynamic_shared[];
    long long query = blockIdx.x;
    if (!(states[query] & TIED))
        return;
    Key* keys = keys_of_all + query * capacity;
    int count = counts[query], room = power_of_two_from(count);
    Key* sorted = room <= shared_keys ? (Key*)(dynamic_shared + sizeof(Selection)) : keys;
    for (int j = threadIdx.x; j < count; j += blockDim.x)
        sorted[j] = (keys[j] >> 32 << 32) | places[(unsigned)keys[j]];
    sort_keys(sorted, count, room);
    for (int j = threadIdx.x; j < min(k, count); j += blockDim.x)
        passages[query * k + j] = passages_by_place[(unsigned)sorted[j]];
}
