/* Convolution, max pooling by two and ReLU as one layer: channels last, stride 1, one thread.
 *
 * Why by hand: pooling by two passes the gradient of one position in four, and ReLU that of about half of those, so seven
 * eighths of what a library multiplies in the backward pass of the convolution are zeros. Skipping them makes that pass
 * several times cheaper than dense products at the machine's full rate. Forward, PyTorch's convolution is as fast as the
 * machine allows except where the input has few channels, as images have; that case is here too.
 *
 * Layouts: activations [n][height][width][channels], weights [out][kernel height][kernel width][in], contiguous floats.
 * The results equal PyTorch's up to the order of additions.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif
#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef struct {
  long n, hx, wx, c;        /* input: examples, height, width, channels */
  long o, kh, kw, pad;      /* output channels, kernel, padding */
  long hp, wp;              /* pooled output */
} shape;

/* Half as wide: what comparisons are done in, for which compilers have a plain form at this width. */
enum { HALF = 8 };
typedef float half __attribute__((vector_size(4 * HALF), aligned(4), may_alias));
typedef int32_t ihalf __attribute__((vector_size(4 * HALF), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE half choose(ihalf mask, half a, half b) { return (half)(((ihalf)a & mask) | ((ihalf)b & ~mask)); }

/* ---- forward: y [n][h][w][c] -> out [n][h/2][w/2][c], the largest of each two by two, and which of the four it was ---- */

INLINE void pool_one(float a, float b, float c, float d, int relu, float *out, int32_t *which) {
  float m = a;
  int32_t at = 0;
  /* "not smaller or equal": a NaN wins and stays, as it does in PyTorch */
  if (!(b <= m) && m == m) m = b, at = 1;
  if (!(c <= m) && m == m) m = c, at = 2;
  if (!(d <= m) && m == m) m = d, at = 3;
  *out = relu && m < 0.0f ? 0.0f : m;
  *which = at;
}

/* The same for as many channels as there are; `keep` is all ones where nothing is rectified. */
INLINE void pool_row(const float *p0, const float *p1, const float *p2, const float *p3, long c, int relu, float *o,
                     int32_t *k) {
  ihalf keep = (ihalf){0} - (relu ? 0 : 1);
  long t = 0;
  for (; t + HALF <= c; t += HALF) {
    half m = *(const half *)(p0 + t), v;
    ihalf at = {0}, win;
    v = *(const half *)(p1 + t), win = ~(v <= m) & (m == m), m = choose(win, v, m), at = (win & 1) | (at & ~win);
    v = *(const half *)(p2 + t), win = ~(v <= m) & (m == m), m = choose(win, v, m), at = (win & 2) | (at & ~win);
    v = *(const half *)(p3 + t), win = ~(v <= m) & (m == m), m = choose(win, v, m), at = (win & 3) | (at & ~win);
    *(half *)(o + t) = (half)((ihalf)m & (~(m < (half){0}) | keep));
    *(ihalf *)(k + t) = at;
  }
  for (; t < c; t++) pool_one(p0[t], p1[t], p2[t], p3[t], relu, o + t, k + t);
}

EXPORT WIDEST void sordino_pool(const float *y, long n, long h, long w, long c, int relu, float *out, int32_t *which) {
  long hp = h / 2, wp = w / 2;
  for (long b = 0; b < n; b++)
    for (long i = 0; i < hp; i++)
      for (long j = 0; j < wp; j++) {
        const float *p0 = y + ((b * h + 2 * i) * w + 2 * j) * c, *p2 = p0 + w * c;
        long at = ((b * hp + i) * wp + j) * c;
        pool_row(p0, p0 + c, p2, p2 + c, c, relu, out + at, which + at);
      }
}

/* Whether the kernels for few input channels fit: vectors run along the output channels. */
INLINE int narrow(long c, long o, long kw, long pad) { return pad == 0 && kw * c < LANES && o % LANES == 0; }

EXPORT int sordino_narrow(long c, long o, long kw, long pad) { return narrow(c, o, kw, pad); }

/* WIDTH pooled outputs in a row of one vector of channels: their 4 * WIDTH sums stay in registers over all taps. */
#define PATCHES(WIDTH)                                                                                      \
  {                                                                                                         \
    vec sum[2][2 * WIDTH];                                                                                  \
    for (int u = 0; u < 2; u++)                                                                             \
      for (int v = 0; v < 2 * WIDTH; v++) sum[u][v] = start;                                                \
    for (long r = 0; r < kh; r++) {                                                                         \
      const float *x0 = xb + ((2 * i + r) * wx + 2 * j) * c, *x1 = x0 + wx * c;                             \
      for (long t = 0; t < taps; t++) {                                                                     \
        vec w = load(wt + (r * taps + t) * o + q);                                                          \
        for (int v = 0; v < 2 * WIDTH; v++) sum[0][v] += x0[t + v * c] * w, sum[1][v] += x1[t + v * c] * w; \
      }                                                                                                     \
    }                                                                                                       \
    for (int p = 0; p < WIDTH; p++) {                                                                       \
      float four[4 * LANES];                                                                                \
      for (int m = 0; m < 4; m++) *(vec *)(four + m * LANES) = sum[m >> 1][2 * p + (m & 1)];                \
      long at = ((b * hp + i) * wp + j + p) * o + q;                                                        \
      pool_row(four, four + LANES, four + 2 * LANES, four + 3 * LANES, LANES, relu, out + at, which + at);  \
    }                                                                                                       \
  }

/* Convolution and pooling for few input channels; bias may be NULL. scratch: kh * kw * c * o floats. */
EXPORT WIDEST void sordino_forward(const float *x, const float *weight, const float *bias, long n, long hx, long wx,
                                   long c, long o, long kh, long kw, int relu, float *out, int32_t *which,
                                   float *scratch) {
  long hp = (hx - kh + 1) / 2, wp = (wx - kw + 1) / 2, taps = kw * c, size = kh * taps;
  float *wt = scratch;
  for (long q = 0; q < o; q++)
    for (long t = 0; t < size; t++) wt[t * o + q] = weight[q * size + t];
  for (long b = 0; b < n; b++) {
    const float *xb = x + b * hx * wx * c;
    for (long q = 0; q < o; q += LANES) {
      vec start = bias ? load(bias + q) : (vec){0};
      for (long i = 0; i < hp; i++) {
        long j = 0;
        for (; j + 2 <= wp; j += 2) PATCHES(2)
        for (; j < wp; j++) PATCHES(1)
      }
    }
  }
}

/* ---- backward ------------------------------------------------------------------------------------------------------- */

typedef struct {
  float v;
  int32_t top, left;
} hit; /* a gradient that is not zero, and the corner of the patch that it came from */

/* The gradients of one example and output channel that are not zero. */
INLINE long collect(const float *g, const float *out, const int32_t *which, const shape *s, long b, long q, int relu,
                    hit *hits, float *db) {
  long found = 0;
  float sum = 0.0f;
  for (long i = 0, at = b * s->hp * s->wp * s->o + q; i < s->hp; i++)
    for (long j = 0; j < s->wp; j++, at += s->o) {
      float v = g[at];
      hits[found].v = v;
      hits[found].top = (int32_t)(2 * i + (which[at] >> 1) - s->pad);
      hits[found].left = (int32_t)(2 * j + (which[at] & 1) - s->pad);
      long counts = (v != 0.0f) & (!relu | !(out[at] <= 0.0f));
      sum += counts ? v : 0.0f;
      found += counts;
    }
  *db += sum;
  return found;
}

/* One kernel row of `rows` vectors, all patches inside the input: sums stay in registers. */
#define ROW(VECTORS)                                                                                        \
  case VECTORS: {                                                                                           \
    vec acc[VECTORS], w[VECTORS];                                                                           \
    for (int k = 0; k < VECTORS; k++) acc[k] = load(dwr + LANES * k), w[k] = load(wr + LANES * k);          \
    for (long f = 0; f < found; f++) {                                                                      \
      long off = ((hits[f].top + r) * s->wx + hits[f].left) * s->c;                                         \
      for (int k = 0; k < VECTORS; k++) acc[k] += hits[f].v * load(xb + off + LANES * k);                   \
      if (dxb)                                                                                              \
        for (int k = 0; k < VECTORS; k++) *(vec *)(dxb + off + LANES * k) += hits[f].v * w[k];              \
    }                                                                                                       \
    for (int k = 0; k < VECTORS; k++) *(vec *)(dwr + LANES * k) = acc[k];                                   \
    break;                                                                                                  \
  }

/* Enough input channels to fill vectors along a patch row. */
INLINE void backward_wide(const float *g, const float *out, const int32_t *which, const float *x, const float *weight,
                          const shape *s, int relu, float *dw, float *db, float *dx, hit *hits) {
  long row = s->kw * s->c, size = s->kh * row;
  int vectors = s->pad == 0 && row % LANES == 0 && row / LANES <= 12 ? (int)(row / LANES) : 0;
  for (long b = 0; b < s->n; b++) {
    const float *xb = x + b * s->hx * s->wx * s->c;
    float *dxb = dx ? dx + b * s->hx * s->wx * s->c : 0;
    for (long q = 0; q < s->o; q++) {
      long found = collect(g, out, which, s, b, q, relu, hits, db + q);
      for (long r = 0; r < s->kh; r++) {
        float *dwr = dw + q * size + r * row;
        const float *wr = weight + q * size + r * row;
        switch (vectors) {
          ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) ROW(8) ROW(9) ROW(10) ROW(11) ROW(12)
          default:
            for (long f = 0; f < found; f++) {
              long top = hits[f].top + r, left = hits[f].left;
              if (top < 0 || top >= s->hx) continue;
              long from = left < 0 ? -left : 0, to = left + s->kw > s->wx ? s->wx - left : s->kw;
              long off = (top * s->wx + left) * s->c;
              float v = hits[f].v;
              for (long t = from * s->c; t < to * s->c; t++) dwr[t] += v * xb[off + t];
              if (dxb)
                for (long t = from * s->c; t < to * s->c; t++) dxb[off + t] += v * wr[t];
            }
        }
      }
    }
  }
}

/* Few input channels: patch rows are too short for vectors, so these run along the output channels instead. `four` holds
 * the gradients of one example spread to the four places of each pool; acc [kh*kw*c][o] is the transposed gradient. */
#define TAPS(COUNT)                                                                                        \
  case COUNT: {                                                                                            \
    vec sum[COUNT];                                                                                        \
    for (int t = 0; t < COUNT; t++) sum[t] = load(a + t * s->o);                                           \
    for (long i = 0; i < s->hp; i++)                                                                       \
      for (long j = 0; j < s->wp; j++) {                                                                   \
        const float *f4 = four + (i * s->wp + j) * 4 * LANES;                                              \
        const float *p = xb + ((2 * i + r) * s->wx + 2 * j) * s->c, *p2 = p + s->wx * s->c;                \
        vec f0 = load(f4), f1 = load(f4 + LANES), f2 = load(f4 + 2 * LANES), f3 = load(f4 + 3 * LANES);    \
        for (int t = 0; t < COUNT; t++)                                                                    \
          sum[t] += p[t] * f0 + p[t + s->c] * f1 + p2[t] * f2 + p2[t + s->c] * f3;                         \
      }                                                                                                    \
    for (int t = 0; t < COUNT; t++) *(vec *)(a + t * s->o) = sum[t];                                       \
    break;                                                                                                 \
  }

INLINE void backward_narrow(const float *g, const float *out, const int32_t *which, const float *x, const shape *s,
                            int relu, float *acc, float *db, float *four) {
  int taps = (int)(s->kw * s->c);
  for (long b = 0; b < s->n; b++) {
    const float *xb = x + b * s->hx * s->wx * s->c;
    for (long q = 0; q < s->o; q += LANES) {
      vec bias = load(db + q);
      for (long p = 0; p < s->hp * s->wp; p++) {
        long at = (b * s->hp * s->wp + p) * s->o + q;
        for (int u = 0; u < LANES; u += HALF) {
          half v = *(const half *)(g + at + u);
          if (relu) v = (half)((ihalf)v & ~(*(const half *)(out + at + u) <= (half){0}));
          ihalf k = *(const ihalf *)(which + at + u);
          for (int m = 0; m < 4; m++) *(half *)(four + (4 * p + m) * LANES + u) = (half)((ihalf)v & (k == m));
          *(half *)(four + (4 * s->hp * s->wp) * LANES + u) = v;
        }
        bias += load(four + (4 * s->hp * s->wp) * LANES);
      }
      *(vec *)(db + q) = bias;
      for (long r = 0; r < s->kh; r++) {
        float *a = acc + r * taps * s->o + q;
        switch (taps) {
          TAPS(1) TAPS(2) TAPS(3) TAPS(4) TAPS(5) TAPS(6) TAPS(7) TAPS(8) TAPS(9) TAPS(10) TAPS(11) TAPS(12) TAPS(13)
          TAPS(14) TAPS(15)
        }
      }
    }
  }
}

/* Gradients of sum(g * relu(pool(conv(x)))) by the weights, the bias and (unless dx is NULL) the input; all overwritten.
 * scratch: floats, at least sordino_scratch(...) of them. */
EXPORT WIDEST void sordino_backward(const float *g, const float *out, const int32_t *which, const float *x,
                                    const float *weight, long n, long hx, long wx, long c, long o, long kh, long kw,
                                    long pad, int relu, float *dw, float *db, float *dx, float *scratch) {
  shape s = {n, hx, wx, c, o, kh, kw, pad, (hx + 2 * pad - kh + 1) / 2, (wx + 2 * pad - kw + 1) / 2};
  long size = kh * kw * c;
  memset(db, 0, o * sizeof(float));
  if (!dx && narrow(c, o, kw, pad)) {
    memset(scratch, 0, size * o * sizeof(float));
    backward_narrow(g, out, which, x, &s, relu, scratch, db, scratch + size * o);
    for (long q = 0; q < o; q++)
      for (long t = 0; t < size; t++) dw[q * size + t] = scratch[t * o + q];
    return;
  }
  memset(dw, 0, o * size * sizeof(float));
  if (dx) memset(dx, 0, n * hx * wx * c * sizeof(float));
  backward_wide(g, out, which, x, weight, &s, relu, dw, db, dx, (hit *)scratch);
}

/* The same for every example by itself: dw [n][o][kh][kw][c], db [n][o]. */
EXPORT void sordino_backward_each(const float *g, const float *out, const int32_t *which, const float *x,
                                  const float *weight, long n, long hx, long wx, long c, long o, long kh, long kw,
                                  long pad, int relu, float *dw, float *db, float *dx, float *scratch) {
  long pooled = (hx + 2 * pad - kh + 1) / 2 * ((wx + 2 * pad - kw + 1) / 2) * o, input = hx * wx * c;
  for (long b = 0; b < n; b++)
    sordino_backward(g + b * pooled, out + b * pooled, which + b * pooled, x + b * input, weight, 1, hx, wx, c, o, kh,
                     kw, pad, relu, dw + b * o * kh * kw * c, db + b * o, dx ? dx + b * input : 0, scratch);
}

/* Floats of scratch that sordino_backward may use. */
EXPORT long sordino_scratch(long c, long o, long kh, long kw, long hp, long wp) {
  long narrow = kh * kw * c * o + (hp * wp * 4 + 1) * LANES, wide = (hp * wp + 1) * (long)(sizeof(hit) / sizeof(float));
  return narrow > wide ? narrow : wide;
}

/* Python finds the library by importing it; the functions are called through ctypes. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", 0, -1, 0, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
