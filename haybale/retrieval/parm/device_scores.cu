// Scores of documents from the hits of the paragraphs of query documents (device_scores.py).
//
// Hits (r, n) are those of r paragraphs. The key of a hit is that of its pair of query document and passage: query ·
// n_passages + passage. The passages of a document have consecutive numbers, so hits that are sorted by their keys are
// sorted by query, document and passage. `order` has the positions of the hits in that order. The hits of a query on one
// document are a cell. A hit that does not count has the largest key, and no cell.
//
// Every kernel is correct for any number of threads that is 1 or a multiple of a warp's.

constexpr long long NOT_COUNTED = 0x7fffffffffffffffLL;

__device__ long long first_of_thread() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ long long all_threads() { return gridDim.x * (long long)blockDim.x; }

__device__ float largest_of_warp(float value) {
    for (int bits = lanes_of_warp() / 2; bits; bits /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, bits));
    return value;
}

__device__ double largest_of_block(double value, double* shared) {
    return combined_in_block(value, shared, [](double a, double b) { return fmax(a, b); });
}

// The number whose addition and subtraction round terms so that sums of up to `count` of them are exact (formulas.py).
__device__ double shift_for_sums(double largest, long long count) {
    int exponent;
    frexp(largest * double(count > 1 ? count : 1), &exponent);
    return ldexp(3.0, exponent);
}

__device__ double rounded(double term, double shift) {
    double shifted = term + shift;
    return shifted - shift;
}

// Writes the largest number among those that a block reads, -1 without any. Shared memory: a number for each thread.
extern "C" __global__ void largest_passages(const long long* __restrict__ passages, long long size,
                                            long long* __restrict__ out) {
    extern __shared__ unsigned char dynamic_shared[];
    long long largest = -1;
    for (long long hit = first_of_thread(); hit < size; hit += all_threads())
        largest = passages[hit] > largest ? passages[hit] : largest;
    largest = combined_in_block(largest, (long long*)dynamic_shared, [](long long a, long long b) { return a > b ? a : b; });
    if (!threadIdx.x)
        out[blockIdx.x] = largest;
}

// Writes the keys of hits. Row i belongs to the query queries[i]. With only_first, only the first passage of a document
// counts. Padding (-1) never counts.
extern "C" __global__ void make_keys(const long long* __restrict__ passages, const int* __restrict__ queries,
                                     const long long* __restrict__ doc_of, long long n_passages, long long size,
                                     long long width, int only_first, long long* __restrict__ keys) {
    for (long long hit = first_of_thread(); hit < size; hit += all_threads()) {
        long long passage = passages[hit];
        bool counts = passage >= 0;
        if (counts && only_first)
            counts = passage == 0 || doc_of[passage - 1] != doc_of[passage];
        keys[hit] = counts ? queries[hit / width] * n_passages + passage : NOT_COUNTED;
    }
}

// Writes, for each hit that counts, the number (row · n_documents + document) · width + column, and otherwise NOT_COUNTED.
extern "C" __global__ void number_hits(const long long* __restrict__ passages, const long long* __restrict__ keys,
                                       const long long* __restrict__ doc_of, long long n_documents, long long size,
                                       long long width, long long* __restrict__ numbers) {
    for (long long hit = first_of_thread(); hit < size; hit += all_threads()) {
        long long row = hit / width, column = hit - row * width;
        bool counts = keys[hit] != NOT_COUNTED;
        numbers[hit] = counts ? (row * n_documents + doc_of[passages[hit]]) * width + column : NOT_COUNTED;
    }
}

// Lets only the first hit of each row on a document count. `numbers` are those of number_hits, sorted.
extern "C" __global__ void keep_first_hits(const long long* __restrict__ numbers, long long n_documents, long long size,
                                           long long width, long long* __restrict__ keys) {
    for (long long i = first_of_thread() + 1; i < size; i += all_threads()) {
        long long number = numbers[i], row_and_document = number / width;
        if (number != NOT_COUNTED && numbers[i - 1] / width == row_and_document)
            keys[row_and_document / n_documents * width + number % width] = NOT_COUNTED;
    }
}

// Writes 1 for each hit, in sorted order, that is the first of its cell, and 0 for all others.
extern "C" __global__ void mark_cells(const long long* __restrict__ keys, const long long* __restrict__ order,
                                      const long long* __restrict__ doc_of, long long n_passages, long long size,
                                      long long* __restrict__ marks) {
    for (long long i = first_of_thread(); i < size; i += all_threads()) {
        long long key = keys[order[i]], before = i ? keys[order[i - 1]] : -1;
        bool is_first = key != NOT_COUNTED && key != before;
        if (is_first && i && key / n_passages == before / n_passages)
            is_first = doc_of[key % n_passages] != doc_of[before % n_passages];
        marks[i] = is_first;
    }
}

// Writes where the hits of each cell begin in the sorted order, and its query and document. `cells` (size,) are the sums
// of the marks up to each hit: the number of its cell, from 1. starts[n_cells] is the number of hits that count.
extern "C" __global__ void list_cells(const long long* __restrict__ keys, const long long* __restrict__ order,
                                      const long long* __restrict__ cells, const long long* __restrict__ doc_of,
                                      long long n_passages, long long first_query, long long size, long long n_cells,
                                      long long* __restrict__ starts, long long* __restrict__ query,
                                      long long* __restrict__ document) {
    for (long long i = first_of_thread(); i < size; i += all_threads()) {
        long long key = keys[order[i]], cell = cells[i] - 1;
        if (key == NOT_COUNTED)
            continue;
        if (!i || cells[i - 1] != cells[i]) {
            starts[cell] = i;
            query[cell] = key / n_passages + first_query;
            document[cell] = doc_of[key % n_passages];
        }
        if (i + 1 == size || keys[order[i + 1]] == NOT_COUNTED)
            starts[n_cells] = i + 1;
    }
}

// The weight of a hit: that of its rank, with has_rank_weights, or its score.
__device__ double weight_of(long long hit, long long width, const float* scores, const double* rank_weights,
                            int has_rank_weights) {
    return has_rank_weights ? rank_weights[hit % width] : double(scores[hit]);
}

// Writes the weights of hits, 0 for those that do not count.
extern "C" __global__ void weigh_hits(const long long* __restrict__ keys, const float* __restrict__ scores,
                                      const double* __restrict__ rank_weights, int has_rank_weights, long long size,
                                      long long width, double* __restrict__ terms) {
    for (long long hit = first_of_thread(); hit < size; hit += all_threads())
        terms[hit] = keys[hit] == NOT_COUNTED ? 0 : weight_of(hit, width, scores, rank_weights, has_rank_weights);
}

// Writes the sum, minimum or maximum (how: 0, 1, 2) of each query's paragraphs, whose rows of `paragraphs` (·, d) are
// offsets[query] to offsets[query + 1]: a block for each query. Without paragraphs it is 0. Sums are of rounded terms.
// Shared memory: a double for each thread.
extern "C" __global__ void reduce_paragraphs(const float* __restrict__ paragraphs, const long long* __restrict__ offsets,
                                             long long d, int how, double* __restrict__ out) {
    extern __shared__ unsigned char dynamic_shared[];
    long long first = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
    double shift = 0;
    if (how == 0) {
        double largest = 0;
        for (long long k = first * d + threadIdx.x; k < end * d; k += blockDim.x)
            largest = fmax(largest, fabs(double(paragraphs[k])));
        shift = shift_for_sums(largest_of_block(largest, (double*)dynamic_shared), end - first);
    }
    for (long long k = threadIdx.x; k < d; k += blockDim.x) {
        double result = 0;
        for (long long row = first; row < end; row++) {
            double value = double(paragraphs[row * d + k]);
            if (how == 0)
                result += rounded(value, shift);
            else if (row == first || (how == 1 ? value < result : value > result))
                result = value;
        }
        out[blockIdx.x * d + k] = result;
    }
}

// Writes weight · ⟨q, p⟩ of hits, 0 for those that do not count: a warp for each pair of query and passage, whose product
// is summed in double precision, in an order that depends on d only, and rounded to float32. `reduced` (queries, d).
template <class T>
__device__ void weigh_products(const long long* keys, const long long* order, const float* scores,
                               const double* rank_weights, int has_rank_weights, const T* passages,
                               const double* reduced, long long n_passages, long long d, long long size,
                               long long width, double* terms) {
    int lane = threadIdx.x % warpSize;
    for (long long i = first_of_thread() / lanes_of_warp(); i < size; i += all_threads() / lanes_of_warp()) {
        long long key = keys[order[i]];
        if (key == NOT_COUNTED) {
            if (!lane)
                terms[order[i]] = 0;
            continue;
        }
        if (i && keys[order[i - 1]] == key)
            continue; // the warp of the first hit of the pair writes the terms of all
        long long query = key / n_passages;
        const T* passage = passages + (key - query * n_passages) * d;
        double product = 0;
        for (long long k = lane; k < d; k += lanes_of_warp())
            product += reduced[query * d + k] * double(value_of(passage[k]));
        product = double(float(sum_of_warp(product)));
        for (long long same = i + lane; same < size && keys[order[same]] == key; same += lanes_of_warp())
            terms[order[same]] = product * weight_of(order[same], width, scores, rank_weights, has_rank_weights);
    }
}

extern "C" __global__ void weigh_products_float32(const long long* __restrict__ keys,
                                                  const long long* __restrict__ order, const float* __restrict__ scores,
                                                  const double* __restrict__ rank_weights, int has_rank_weights,
                                                  const float* __restrict__ passages,
                                                  const double* __restrict__ reduced, long long n_passages, long long d,
                                                  long long size, long long width, double* __restrict__ terms) {
    weigh_products(keys, order, scores, rank_weights, has_rank_weights, passages, reduced, n_passages, d, size, width,
                   terms);
}

extern "C" __global__ void weigh_products_float16(const long long* __restrict__ keys,
                                                  const long long* __restrict__ order, const float* __restrict__ scores,
                                                  const double* __restrict__ rank_weights, int has_rank_weights,
                                                  const unsigned short* __restrict__ passages,
                                                  const double* __restrict__ reduced, long long n_passages, long long d,
                                                  long long size, long long width, double* __restrict__ terms) {
    weigh_products(keys, order, scores, rank_weights, has_rank_weights, passages, reduced, n_passages, d, size, width,
                   terms);
}

// Writes the shift that rounds the terms of each query: a block for each query, whose terms are offsets[query] · width to
// offsets[query + 1] · width. Shared memory: a double for each thread.
extern "C" __global__ void find_shifts(const long long* __restrict__ keys, const double* __restrict__ terms,
                                       const long long* __restrict__ offsets, long long width,
                                       double* __restrict__ shifts) {
    extern __shared__ unsigned char dynamic_shared[];
    double* shared = (double*)dynamic_shared;
    long long end = offsets[blockIdx.x + 1] * width;
    double largest = 0, count = 0;
    for (long long hit = offsets[blockIdx.x] * width + threadIdx.x; hit < end; hit += blockDim.x) {
        largest = fmax(largest, fabs(terms[hit])); // 0 if the hit does not count
        count += keys[hit] != NOT_COUNTED;
    }
    largest = largest_of_block(largest, shared);
    count = sum_of_block(count, shared);
    if (!threadIdx.x)
        shifts[blockIdx.x] = shift_for_sums(largest, (long long)count);
}

// Rounds the terms of hits, and adds them to the scores of their cells, which are 0 before. Every partial sum of rounded
// terms is exact, so the order of the additions does not matter.
extern "C" __global__ void sum_cells(const long long* __restrict__ keys, const long long* __restrict__ order,
                                     const long long* __restrict__ cells, const double* __restrict__ shifts,
                                     long long n_passages, long long size, double* __restrict__ terms,
                                     double* __restrict__ scores) {
    for (long long i = first_of_thread(); i < size; i += all_threads()) {
        long long hit = order[i], key = keys[hit];
        if (key == NOT_COUNTED)
            continue;
        double term = rounded(terms[hit], shifts[key / n_passages]);
        terms[hit] = term;
        atomicAdd(&scores[cells[i] - 1], term);
    }
}

// Divides the score of each cell by the number of its hits and that of its query's paragraphs, and writes the divisor.
extern "C" __global__ void divide_scores(const long long* __restrict__ starts, const long long* __restrict__ query,
                                         const long long* __restrict__ offsets, long long first_query, long long n_cells,
                                         double* __restrict__ scores, double* __restrict__ divisors) {
    for (long long cell = first_of_thread(); cell < n_cells; cell += all_threads()) {
        long long of_block = query[cell] - first_query, paragraphs = offsets[of_block + 1] - offsets[of_block];
        double divisor = double((starts[cell + 1] - starts[cell]) * paragraphs);
        divisors[cell] = divisor;
        scores[cell] /= divisor;
    }
}

// Writes the largest score of each cell's hits: a warp for each cell.
extern "C" __global__ void largest_of_cells(const long long* __restrict__ order, const long long* __restrict__ starts,
                                            const float* __restrict__ scores, long long n_cells,
                                            double* __restrict__ out) {
    int lane = threadIdx.x % warpSize;
    for (long long cell = first_of_thread() / lanes_of_warp(); cell < n_cells; cell += all_threads() / lanes_of_warp()) {
        float largest = -__uint_as_float(0x7f800000u);
        for (long long i = starts[cell] + lane; i < starts[cell + 1]; i += lanes_of_warp())
            largest = fmaxf(largest, scores[order[i]]);
        largest = largest_of_warp(largest);
        if (!lane)
            out[cell] = double(largest);
    }
}

// Writes ⟨q, p̂⟩ of each cell, where p̂ is the element-wise minimum or maximum of the cell's passages: a block for each
// cell. The product is summed in double precision. Shared memory: a double for each thread.
template <class T>
__device__ void multiply_extremes(const long long* keys, const long long* order, const long long* starts,
                                  const T* passages, const double* reduced, long long n_passages, long long d,
                                  int maximum, double* out, double* shared) {
    long long first = starts[blockIdx.x], end = starts[blockIdx.x + 1], query = keys[order[first]] / n_passages;
    double product = 0;
    for (long long k = threadIdx.x; k < d; k += blockDim.x) {
        float extreme = 0;
        long long before = -1;
        for (long long i = first; i < end; i++) {
            long long passage = keys[order[i]] - query * n_passages;
            if (passage == before)
                continue;
            float value = value_of(passages[passage * d + k]);
            extreme = before < 0 || (maximum ? value > extreme : value < extreme) ? value : extreme;
            before = passage;
        }
        product += reduced[query * d + k] * double(extreme);
    }
    product = sum_of_block(product, shared);
    if (!threadIdx.x)
        out[blockIdx.x] = product;
}

extern "C" __global__ void multiply_extremes_float32(const long long* __restrict__ keys,
                                                     const long long* __restrict__ order,
                                                     const long long* __restrict__ starts,
                                                     const float* __restrict__ passages,
                                                     const double* __restrict__ reduced, long long n_passages,
                                                     long long d, int maximum, double* __restrict__ out) {
    extern __shared__ unsigned char dynamic_shared[];
    multiply_extremes(keys, order, starts, passages, reduced, n_passages, d, maximum, out, (double*)dynamic_shared);
}

extern "C" __global__ void multiply_extremes_float16(const long long* __restrict__ keys,
                                                     const long long* __restrict__ order,
                                                     const long long* __restrict__ starts,
                                                     const unsigned short* __restrict__ passages,
                                                     const double* __restrict__ reduced, long long n_passages,
                                                     long long d, int maximum, double* __restrict__ out) {
    extern __shared__ unsigned char dynamic_shared[];
    multiply_extremes(keys, order, starts, passages, reduced, n_passages, d, maximum, out, (double*)dynamic_shared);
}
