/* The cell of an LSTM: all of one time step but the matrix products, in one pass over memory.
 *
 * Gates lie as [n][input, forget, cell, output][size], everything else as [n][size]. Each unit of each row goes through the same
 * sequence of operations on eight lanes, wherever it stands: rows that do not fill the lanes are computed on a copy that does. So
 * what one row gets is a function of this row alone, bit by bit, whatever the others hold and however many there are.
 */
#include <stdint.h>
#include <string.h>

#include "product.h"

enum { LANES = 8 };
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vec all(float x) { return (vec){0} + x; }
INLINE vec choose(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }

INLINE vec take(const float *p, long count) {
  if (count == LANES) return *(const vec *)p;
  vec v = {0};
  memcpy(&v, p, count * sizeof(float));
  return v;
}

INLINE void put(float *p, long count, vec v) {
  if (count == LANES)
    *(vec *)p = v;
  else
    memcpy(p, &v, count * sizeof(float));
}

/* e^x - 1, right to a few units in the last place also near zero: x = k ln 2 + r, the series for r, and a power of two. Beyond
 * what floats can hold, x is taken back to the limit; a NaN stays one. */
INLINE vec less_one(vec x) {
  const float magic = 12582912.0f; /* 1.5 2^23: adding it rounds to a whole number, which the last bits then hold */
  x = choose(x < all(-87.0f), all(-87.0f), x);
  x = choose(x > all(88.0f), all(88.0f), x);
  vec shifted = x * 1.44269504f + magic, k = shifted - magic;
  vec r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  vec p = all(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  vec scale = (vec)(((ivec)shifted << 23) + 0x3f800000);
  return scale * p + (scale - 1.0f);
}

INLINE vec sigmoid(vec x) { return 1.0f / (2.0f + less_one(-x)); }

INLINE vec tangent(vec x) {
  vec m = less_one(x + x);
  return m / (m + 2.0f);
}

/* `gates` come as the input's share and leave as the gates themselves; `more` is the share of the states. */
INLINE void forward(float *gates, const float *more, const float *before, float *cells, float *squashed, float *states,
                    long size, long count) {
  vec i = sigmoid(take(gates, count) + take(more, count));
  vec f = sigmoid(take(gates + size, count) + take(more + size, count));
  vec g = tangent(take(gates + 2 * size, count) + take(more + 2 * size, count));
  vec o = sigmoid(take(gates + 3 * size, count) + take(more + 3 * size, count));
  vec c = f * take(before, count) + i * g, s = tangent(c);
  put(gates, count, i), put(gates + size, count, f), put(gates + 2 * size, count, g), put(gates + 3 * size, count, o);
  put(cells, count, c), put(squashed, count, s), put(states, count, o * s);
}

EXPORT WIDEST void sordino_cell_forward(float *gates, const float *more, const float *before, float *cells, float *squashed,
                                        float *states, long n, long size) {
  for (long row = 0; row < n; row++) {
    long j = 0;
    for (; j + LANES <= size; j += LANES)
      forward(gates + j, more + j, before + j, cells + j, squashed + j, states + j, size, LANES);
    if (j < size) forward(gates + j, more + j, before + j, cells + j, squashed + j, states + j, size, size - j);
    gates += 4 * size, more += 4 * size, before += size, cells += size, squashed += size, states += size;
  }
}

/* The gradient at the states is `from_above` and `from_later` together; `dcells` comes as that at this step's cells and leaves as
 * that at the ones before. d [n][4 size]: at the gates, before they were squashed. */
INLINE void backward(const float *gates, const float *before, const float *squashed, const float *from_above,
                     const float *from_later, float *dcells, float *d, long size, long count) {
  vec i = take(gates, count), f = take(gates + size, count), g = take(gates + 2 * size, count), o = take(gates + 3 * size, count);
  vec s = take(squashed, count), dh = take(from_above, count) + take(from_later, count);
  vec dc = take(dcells, count) + dh * o * (1.0f - s * s);
  put(d, count, dc * g * (i * (1.0f - i)));
  put(d + size, count, dc * take(before, count) * (f * (1.0f - f)));
  put(d + 2 * size, count, dc * i * (1.0f - g * g));
  put(d + 3 * size, count, dh * s * (o * (1.0f - o)));
  put(dcells, count, dc * f);
}

EXPORT WIDEST void sordino_cell_backward(const float *gates, const float *before, const float *squashed, const float *from_above,
                                         const float *from_later, float *dcells, float *d, long n, long size) {
  for (long row = 0; row < n; row++) {
    long j = 0;
    for (; j + LANES <= size; j += LANES)
      backward(gates + j, before + j, squashed + j, from_above + j, from_later + j, dcells + j, d + j, size, LANES);
    if (j < size)
      backward(gates + j, before + j, squashed + j, from_above + j, from_later + j, dcells + j, d + j, size, size - j);
    gates += 4 * size, before += size, squashed += size, from_above += size, from_later += size, dcells += size, d += 4 * size;
  }
}

/* All time steps of one layer. Gates [steps][n][4 size] come as the input's share; states and cells [steps + 1][n][size] hold in their
 * first row what the layer begins with. u is packed [size][4 size]. scratch: n rows of gates, and what `multiply` needs. */
EXPORT void sordino_lstm_forward(float *gates, const float *u, float *states, float *cells, float *squashed, long steps, long n,
                                 long size, float *scratch) {
  const products *made = sordino_products();
  float *more = scratch, *rest = scratch + 4 * n * size;
  for (long t = 0; t < steps; t++) {
    long at = t * n * size, after = at + n * size;
    made->multiply(states + at, u, 0, n, size, 4 * size, more, rest);
    sordino_cell_forward(gates + 4 * at, more, cells + at, cells + after, squashed + at, states + after, n, size);
  }
}

/* The gradient d at the gates, from that at the states. dstates and dcells [n][size] come as what the layer's end passes on and leave as
 * what its beginning gets. u is packed [4 size][size]. scratch: what `multiply` needs. */
EXPORT void sordino_lstm_backward(const float *gates, const float *u, const float *cells, const float *squashed,
                                  const float *from_above, float *dstates, float *dcells, float *d, long steps, long n, long size,
                                  float *scratch) {
  const products *made = sordino_products();
  for (long t = steps - 1; t >= 0; t--) {
    long at = t * n * size;
    sordino_cell_backward(gates + 4 * at, cells + at, squashed + at, from_above + at, dstates, dcells, d + 4 * at, n, size);
    made->multiply(d + 4 * at, u, 0, n, 4 * size, size, dstates, scratch);
  }
}
