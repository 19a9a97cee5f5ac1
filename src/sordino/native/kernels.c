/* What training calls: the block of convolution, pooling and ReLU as this processor computes it best (block.inc), and norms and
 * sums of rows.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "block.h"

#if MANY_KINDS
#define BEST                                                           \
  (__builtin_cpu_supports("x86-64-v4")   ? &sordino_block_v4           \
   : __builtin_cpu_supports("x86-64-v3") ? &sordino_block_v3           \
                                         : &sordino_block_plain)
#else
#define BEST (&sordino_block_plain)
#endif

/* ---- the block -------------------------------------------------------------------------------------------------------- */

EXPORT void sordino_pool(const float *y, const block *s, int relu, float *out, int32_t *where) {
  BEST->pool(y, s, relu, out, where);
}

EXPORT int sordino_convolves(const block *s) { return BEST->convolves(s); }

EXPORT long sordino_forward_scratch(const block *s) { return BEST->forward_scratch(s); }

EXPORT void sordino_forward(const float *x, const float *weight, const float *bias, const block *s, int relu, float *out,
                            int32_t *where, float *scratch) {
  BEST->forward(x, weight, bias, s, relu, out, where, scratch);
}

EXPORT long sordino_backward_scratch(const block *s) { return BEST->backward_scratch(s); }

EXPORT void sordino_backward(const float *g, const float *out, const int32_t *where, const float *x, const float *weight,
                             const block *s, int relu, int each, float *dw, float *db, float *dx, float *scratch) {
  BEST->backward(g, out, where, x, weight, s, relu, each, dw, db, dx, scratch);
}

/* ---- norms and sums of rows: single precision in, double precision out ------------------------------------------------- */

/* Four at a time, eight sums side by side: compilers keep wider vectors of doubles in memory. */
enum { QUAD = 4 };
typedef float quad __attribute__((vector_size(4 * QUAD), aligned(4), may_alias));
typedef double wide4 __attribute__((vector_size(8 * QUAD), aligned(8), may_alias));
INLINE wide4 widen(const float *p) { return __builtin_convertvector(*(const quad *)p, wide4); }

/* Squared lengths of n rows of d floats. The square of a float is exact in a double and neither over- nor underflows. */
EXPORT WIDEST void sordino_squares(const float *x, long n, long d, double *out) {
  for (long i = 0; i < n; i++, x += d) {
    wide4 sum[8] = {{0}};
    long t = 0;
    for (; t + 8 * QUAD <= d; t += 8 * QUAD)
      for (int k = 0; k < 8; k++) {
        wide4 v = widen(x + t + k * QUAD);
        sum[k] += v * v;
      }
    double rest = 0;
    for (; t < d; t++) rest += (double)x[t] * x[t];
    wide4 all = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    out[i] = ((all[0] + all[1]) + (all[2] + all[3])) + rest;
  }
}

/* out [d] gets the sum of f[i] x[i] in addition, rows in their order. Rows whose factor is zero are not read: they may hold NaN. */
enum { TILE = 1024, ABREAST = 4 };
EXPORT WIDEST void sordino_weighted(const float *x, const double *f, long n, long d, double *out) {
  for (long from = 0; from < d; from += TILE) {
    long to = from + TILE < d ? from + TILE : d;
    for (long i = 0; i < n;) {
      const float *row[ABREAST];
      double by[ABREAST] = {0};
      long found = 0;
      for (; i < n && found < ABREAST; i++)
        if (f[i] != 0.0) row[found] = x + i * d, by[found++] = f[i];
      if (!found) break;
      for (long k = found; k < ABREAST; k++) row[k] = row[0];
      long t = from;
      for (; t + 2 * QUAD <= to; t += 2 * QUAD) {
        wide4 a = *(wide4 *)(out + t), b = *(wide4 *)(out + t + QUAD);
        for (int k = 0; k < ABREAST; k++) a += by[k] * widen(row[k] + t), b += by[k] * widen(row[k] + t + QUAD);
        *(wide4 *)(out + t) = a, *(wide4 *)(out + t + QUAD) = b;
      }
      for (; t < to; t++)
        for (int k = 0; k < ABREAST; k++) out[t] += by[k] * (double)row[k][t];
    }
  }
}

/* out [d] gets the sum of x[i]^2 in addition. */
EXPORT WIDEST void sordino_add_squares(const float *restrict x, long n, long d, double *restrict out) {
  for (long from = 0; from < d; from += TILE) {
    long to = from + TILE < d ? from + TILE : d;
    for (long i = 0; i < n; i++)
      for (long t = from; t < to; t++) out[t] += (double)x[i * d + t] * x[i * d + t];
  }
}

/* out [o][d] = sum of f[i] g[i] x[i]' for g [n][o], in double precision: four columns of up to ten outputs in registers. The
 * lines of the next columns are asked for ahead, since each row lies on another page. w: room for f[i] g[i]. */
#define COLUMNS(COUNT)                                                         \
  case COUNT: {                                                                \
    wide4 a[COUNT];                                                            \
    for (int k = 0; k < COUNT; k++) a[k] = (wide4){0};                         \
    for (long i = 0; i < n; i++) {                                             \
      wide4 u = widen(x + i * d + from);                                       \
      for (int k = 0; k < COUNT; k++) a[k] += w[i * o + q + k] * u;            \
    }                                                                          \
    for (int k = 0; k < COUNT; k++) *(wide4 *)(out + (q + k) * d + from) = a[k]; \
    break;                                                                     \
  }
enum { LINE = 16 }; /* floats */
EXPORT WIDEST void sordino_outer(const float *x, const float *g, const double *f, long n, long d, long o, double *out, double *w) {
  long from = 0;
  for (long i = 0; i < n; i++)
    for (long q = 0; q < o; q++) w[i * o + q] = f[i] * g[i * o + q];
  for (; from + QUAD <= d; from += QUAD) {
    if (from % LINE == 0)
      for (long i = 0; i < n; i++) __builtin_prefetch(x + i * d + from + LINE);
    for (long q = 0, some; q < o; q += some) switch (some = o - q >= 10 ? 10 : o - q >= 5 ? 5 : o - q) {
        COLUMNS(1) COLUMNS(2) COLUMNS(3) COLUMNS(4) COLUMNS(5) COLUMNS(10)
      }
  }
  for (; from < d; from++)
    for (long q = 0; q < o; q++) {
      double sum = 0;
      for (long i = 0; i < n; i++) sum += w[i * o + q] * x[i * d + from];
      out[q * d + from] = sum;
    }
}

/* ---- softmax regression: one example after the other ------------------------------------------------------------------- */

/* What is computed of an example is the same sequence of operations in whichever of the four places it stands, and none of them
 * touches another example: a place without one computes the first again and drops it. */
enum { ABOVE = 4, ASIDE = 3, HALF = 8 };
typedef float half __attribute__((vector_size(4 * HALF), aligned(4), may_alias));

INLINE float across(half v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

/* Scores of four examples for `COUNT` outputs. */
#define SCORES(COUNT)                                                          \
  case COUNT: {                                                                \
    half a[ABOVE][COUNT];                                                      \
    for (int r = 0; r < ABOVE; r++)                                            \
      for (int k = 0; k < COUNT; k++) a[r][k] = (half){0};                     \
    long t = 0;                                                                \
    for (; t + HALF <= d; t += HALF) {                                         \
      half v[COUNT];                                                           \
      for (int k = 0; k < COUNT; k++) v[k] = *(const half *)(w + (q + k) * d + t); \
      for (int r = 0; r < ABOVE; r++) {                                        \
        half u = *(const half *)(row[r] + t);                                  \
        for (int k = 0; k < COUNT; k++) a[r][k] += u * v[k];                   \
      }                                                                        \
    }                                                                          \
    for (int r = 0; r < ABOVE; r++)                                            \
      for (int k = 0; k < COUNT; k++) {                                        \
        double rest = across(a[r][k]);                                         \
        for (long s = t; s < d; s++) rest += (double)row[r][s] * w[(q + k) * d + s]; \
        score[r * o + q + k] = rest;                                           \
      }                                                                        \
    break;                                                                     \
  }

/* g [n][o]: the gradient of the cross-entropy at the scores, softmax less one at the label. What lies beyond the classes is no label:
 * such an example gets NaN, as one whose scores are not finite does, and clipping drops it. scratch: 4 o doubles. */
EXPORT WIDEST void sordino_softmax(const float *x, const float *w, const float *bias, const int64_t *y, long n, long d, long o,
                                   float *g, double *score) {
  for (long i = 0; i < n; i += ABOVE) {
    const float *row[ABOVE];
    for (int r = 0; r < ABOVE; r++) row[r] = x + (i + r < n ? i + r : i) * d;
    for (long q = 0; q < o; q += ASIDE) switch (o - q < ASIDE ? o - q : ASIDE) {
        SCORES(1) SCORES(2) SCORES(3)
      }
    for (int r = 0; r < ABOVE && i + r < n; r++) {
      double *s = score + r * o, most = -INFINITY, sum = 0, others = 0;
      float *to = g + (i + r) * o;
      for (long k = 0; k < o; k++) s[k] += bias ? bias[k] : 0.0;
      for (long k = 0; k < o; k++) most = s[k] > most ? s[k] : most;
      for (long k = 0; k < o; k++) sum += s[k] = exp(s[k] - most); /* a NaN stays one */
      int known = y[i + r] >= 0 && y[i + r] < o;
      for (long k = 0; k < o; k++) others += k == y[i + r] ? 0.0 : s[k];
      for (long k = 0; k < o; k++) to[k] = (float)(known ? (k == y[i + r] ? -others : s[k]) / sum : NAN);
    }
  }
}

/* Python finds the library by importing it; the functions are called through ctypes. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", 0, -1, 0, 0, 0, 0, 0};
EXPORT uint32_t sordino_source(void) { return SORDINO_SOURCE; } /* checksum of this file, from setup.py */

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
