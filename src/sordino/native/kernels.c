/* Convolution, max pooling and ReLU as one layer: channels last, stride 1, windows that do not overlap, one thread.
 *
 * Why by hand: pooling by two by two passes the gradient of one position in four, and ReLU that of about half of those, so
 * seven eighths of what a library multiplies in the backward pass of the convolution are zeros. Skipping them makes that
 * pass several times cheaper than dense products at the machine's full rate. Forward, a library prepares every call and
 * fills its vectors badly where there are few channels, as images and signals have; with small batches both tell.
 *
 * Layouts: activations [n][height][width][channels], weights [out][kernel height][kernel width][in], contiguous floats. A
 * signal is an image of height one. The results equal PyTorch's up to the order of additions.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
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
  long n, h, w, c;  /* input: examples, height, width, channels */
  long o, kh, kw;   /* output channels, kernel */
  long top, left;   /* padding with zeros, the same at the other end */
  long ph, pw;      /* what is pooled: windows of this size */
} block;

INLINE long high(const block *s) { return s->h + 2 * s->top; } /* with padding */
INLINE long wide(const block *s) { return s->w + 2 * s->left; }
INLINE long rows(const block *s) { return (high(s) - s->kh + 1) / s->ph; } /* pooled */
INLINE long columns(const block *s) { return (wide(s) - s->kw + 1) / s->pw; }
INLINE long vectors(long floats) { return (floats + LANES - 1) / LANES; }

/* Half as wide: what comparisons are done in, for which compilers have a plain form at this width. */
enum { HALF = 8 };
typedef float half __attribute__((vector_size(4 * HALF), aligned(4), may_alias));
typedef int32_t ihalf __attribute__((vector_size(4 * HALF), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE half choose(ihalf mask, half a, half b) { return (half)(((ihalf)a & mask) | ((ihalf)b & ~mask)); }

/* One example inside its padding; what lies around it in `to` is zero already. */
INLINE void put_inside(const float *x, const block *s, float *to) {
  for (long i = 0; i < s->h; i++)
    memcpy(to + ((i + s->top) * wide(s) + s->left) * s->c, x + i * s->w * s->c, s->w * s->c * sizeof(float));
}

INLINE void take_inside(const float *from, const block *s, float *x) {
  for (long i = 0; i < s->h; i++)
    memcpy(x + i * s->w * s->c, from + ((i + s->top) * wide(s) + s->left) * s->c, s->w * s->c * sizeof(float));
}

/* ---- forward: the largest of each window, and where it was: how far on in the padded input, in floats ------------------ */

/* One window of `count` channels; its rows are `line` floats apart, its columns `step`. */
INLINE void pool_window(const float *y, long line, long step, const block *s, long ph, long pw, long count, int relu,
                        float *out, int32_t *where) {
  int32_t across = (int32_t)s->c, down = (int32_t)(wide(s) * s->c);
  ihalf keep = (ihalf){0} - (relu ? 0 : 1); /* all ones where nothing is rectified */
  long t = 0;
  /* "not smaller or equal": a NaN wins and stays, as it does in PyTorch */
  for (; t + HALF <= count; t += HALF) {
    half m = *(const half *)(y + t);
    ihalf at = {0};
    for (long u = 0; u < ph; u++)
      for (long v = u ? 0 : 1; v < pw; v++) {
        half x = *(const half *)(y + u * line + v * step + t);
        ihalf win = ~(x <= m) & (m == m), here = (ihalf){0} + ((int32_t)u * down + (int32_t)v * across);
        m = choose(win, x, m), at = (here & win) | (at & ~win);
      }
    *(half *)(out + t) = (half)((ihalf)m & (~(m < (half){0}) | keep));
    *(ihalf *)(where + t) = at;
  }
  for (; t < count; t++) {
    float m = y[t];
    int32_t at = 0;
    for (long u = 0; u < ph; u++)
      for (long v = u ? 0 : 1; v < pw; v++) {
        float x = y[u * line + v * step + t];
        int win = !(x <= m) & (m == m);
        m = win ? x : m, at = win ? (int32_t)u * down + (int32_t)v * across : at;
      }
    out[t] = relu && m < 0.0f ? 0.0f : m;
    where[t] = at;
  }
}

/* A row of windows, with `after` more of them to come. Those of the usual sizes are unrolled. Where windows follow each other in
 * memory, channels are taken in whole vectors: what is too much at the end of one is overwritten by the next. */
INLINE void pool_row(const float *y, long line, long step, const block *s, long count, long after, int relu, float *out,
                     int32_t *where) {
  if (count == s->o && after * s->o >= HALF) count = (count + HALF - 1) / HALF * HALF;
  for (long j = 0; j < columns(s); j++, y += s->pw * step, out += s->o, where += s->o)
    if (s->ph == 2 && s->pw == 2)
      pool_window(y, line, step, s, 2, 2, count, relu, out, where);
    else if (s->ph == 1 && s->pw == 4)
      pool_window(y, line, step, s, 1, 4, count, relu, out, where);
    else
      pool_window(y, line, step, s, s->ph, s->pw, count, relu, out, where);
}

/* Of a convolution's result y [n][height][width][o]. */
EXPORT WIDEST void sordino_pool(const float *y, const block *given, int relu, float *out, int32_t *where) {
  const block s = *given;
  long h = high(&s) - s.kh + 1, w = wide(&s) - s.kw + 1, hp = rows(&s);
  long after = s.n * hp * columns(&s);
  for (long b = 0; b < s.n; b++)
    for (long i = 0; i < hp; i++, out += columns(&s) * s.o, where += columns(&s) * s.o)
      pool_row(y + (b * h + s.ph * i) * w * s.o, w * s.o, s.o, &s, s.o, after -= columns(&s), relu, out, where);
}

/* A row of a convolution's results for one vector of output channels, COUNT at a time: the sums stay in registers. Where
 * COUNT does not divide the row, the last ones are worked out twice. */
#define RESULTS(VEC, WIDTH, COUNT)                                                    \
  case COUNT:                                                                         \
    for (long done = 0; done < used; done += COUNT) {                                 \
      long j = done + COUNT <= used ? done : used - COUNT;                            \
      VEC sum[COUNT];                                                                 \
      for (int v = 0; v < COUNT; v++) sum[v] = *(const VEC *)bias;                    \
      for (long r = 0; r < s->kh; r++) {                                              \
        const float *x0 = x + (r * wide(s) + j) * s->c, *w0 = weight + r * taps * pitch; \
        for (long t = 0; t < taps; t++, w0 += pitch) {                                \
          VEC w = *(const VEC *)w0;                                                   \
          for (int v = 0; v < COUNT; v++) sum[v] += x0[t + v * s->c] * w;             \
        }                                                                             \
      }                                                                               \
      for (int v = 0; v < COUNT; v++) *(VEC *)(line + (j + v) * WIDTH) = sum[v];      \
    }                                                                                 \
    break;
#define CONVOLVE(NAME, VEC, WIDTH)                                                                                \
  INLINE void NAME(const float *x, const float *weight, const float *bias, const block *s, long pitch, long used, \
                   float *line) {                                                                                 \
    long taps = s->kw * s->c, tiles = (used + 7) / 8;                                                             \
    switch ((used + tiles - 1) / tiles) {                                                                         \
      RESULTS(VEC, WIDTH, 1) RESULTS(VEC, WIDTH, 2) RESULTS(VEC, WIDTH, 3) RESULTS(VEC, WIDTH, 4)                 \
      RESULTS(VEC, WIDTH, 5) RESULTS(VEC, WIDTH, 6) RESULTS(VEC, WIDTH, 7) RESULTS(VEC, WIDTH, 8)                 \
    }                                                                                                             \
  }
CONVOLVE(convolve, vec, LANES)
CONVOLVE(convolve_few, half, HALF)

/* Whether patch rows are too short to fill vectors, which then run along the output channels. */
INLINE int narrow(const block *s) { return s->kw * s->c < LANES && s->o % LANES == 0; }

/* Whether `sordino_forward` takes this shape and is faster than a library. */
EXPORT int sordino_convolves(const block *s) {
#if defined(__x86_64__) && defined(__GNUC__)
  int registers = __builtin_cpu_supports("avx512f") != 0; /* to hold eight sums of LANES each */
#else
  int registers = 0;
#endif
  return (s->o % LANES == 0 || s->o < LANES) && (registers || s->kw * s->c < LANES);
}

/* Floats of scratch for `sordino_forward`: weights the other way round and the bias, in whole vectors; results before
 * pooling; an example inside its padding. */
EXPORT long sordino_forward_scratch(const block *s) {
  return (s->kh * s->kw * s->c + 1) * vectors(s->o) * LANES + s->ph * wide(s) * LANES + high(s) * wide(s) * s->c;
}

/* Convolution and pooling; bias may be NULL. */
EXPORT WIDEST void sordino_forward(const float *x, const float *weight, const float *bias, const block *given, int relu,
                                   float *out, int32_t *where, float *scratch) {
  const block s = *given;
  long hp = rows(&s), wp = columns(&s), used = wp * s.pw, size = s.kh * s.kw * s.c, pitch = vectors(s.o) * LANES;
  long width = s.o <= HALF ? HALF : LANES, count = s.o < LANES ? s.o : LANES;
  float *wt = scratch, *start = wt + size * pitch, *lines = start + pitch, *inside = lines + s.ph * wide(&s) * LANES;
  int bare = !s.top && !s.left;
  if (!bare) memset(inside, 0, high(&s) * wide(&s) * s.c * sizeof(float));
  memset(wt, 0, (size + 1) * pitch * sizeof(float));
  if (bias) memcpy(start, bias, s.o * sizeof(float));
  for (long q = 0; q < s.o; q++)
    for (long t = 0; t < size; t++) wt[t * pitch + q] = weight[q * size + t];
  for (long b = 0; b < s.n; b++) {
    const float *xb = bare ? x + b * s.h * s.w * s.c : inside;
    if (!bare) put_inside(x + b * s.h * s.w * s.c, &s, inside);
    for (long q = 0; q < s.o; q += LANES)
      for (long k = 0; k < hp; k++) {
        for (long u = 0; u < s.ph; u++) {
          const float *xu = xb + (k * s.ph + u) * wide(&s) * s.c;
          float *line = lines + u * used * width;
          if (width == HALF)
            convolve_few(xu, wt, start, &s, pitch, used, line);
          else
            convolve(xu, wt + q, start + q, &s, pitch, used, line);
        }
        long row = b * hp + k, at = row * wp * s.o + q, after = (s.n * hp - row - 1) * wp;
        pool_row(lines, used * width, width, &s, count, after, relu, out + at, where + at);
      }
  }
}

/* ---- backward ------------------------------------------------------------------------------------------------------- */

typedef struct {
  float v;
  int32_t at;
} hit; /* a gradient that is not zero, and where in the padded input the patch begins that it came from */

enum { TEAM = 4 }; /* output channels that are looked through together: their counts do not wait for each other */

/* The gradients of one example and `team` output channels that are not zero; each channel has room for `most`. */
INLINE void collect(const float *g, const float *out, const int32_t *where, const block *s, long team, int relu,
                    hit *hits, long most, long *found, float *db) {
  float sum[TEAM] = {0};
  long count[TEAM] = {0};
  for (long i = 0; i < rows(s); i++)
    for (long j = 0; j < columns(s); j++, g += s->o, out += s->o, where += s->o) {
      int32_t corner = (int32_t)((i * s->ph * wide(s) + j * s->pw) * s->c);
      for (long m = 0; m < team; m++) {
        long counts = (g[m] != 0.0f) & (!relu | !(out[m] <= 0.0f));
        hits[m * most + count[m]] = (hit){g[m], corner + where[m]};
        sum[m] += counts ? g[m] : 0.0f;
        count[m] += counts;
      }
    }
  for (long m = 0; m < team; m++) db[m] += sum[m], found[m] = count[m];
}

/* All kernel rows, ROWS of them at a time, VECTORS vectors wide: the sums stay in registers. */
enum { MOST = 12 };
#define SWEEP(ROWS, VECTORS)                                                                              \
  case ROWS * 16 + VECTORS:                                                                               \
    for (long r = 0; r < kh; r += ROWS, x += ROWS * line, weight += ROWS * pitch, dw += ROWS * pitch) {   \
      vec acc[ROWS][VECTORS], w[ROWS][VECTORS];                                                           \
      for (int a = 0; a < ROWS; a++)                                                                      \
        for (int k = 0; k < VECTORS; k++) {                                                               \
          acc[a][k] = load(dw + a * pitch + LANES * k);                                                   \
          w[a][k] = load(weight + a * pitch + LANES * k);                                                 \
        }                                                                                                 \
      for (long f = 0; f < found; f++) {                                                                  \
        long at = hits[f].at;                                                                             \
        for (int a = 0; a < ROWS; a++)                                                                    \
          for (int k = 0; k < VECTORS; k++) acc[a][k] += hits[f].v * load(x + at + a * line + LANES * k); \
        if (dx)                                                                                           \
          for (int a = 0; a < ROWS; a++)                                                                  \
            for (int k = 0; k < VECTORS; k++)                                                             \
              *(vec *)(dx + at + (r + a) * line + LANES * k) += hits[f].v * w[a][k];                      \
      }                                                                                                   \
      for (int a = 0; a < ROWS; a++)                                                                      \
        for (int k = 0; k < VECTORS; k++) *(vec *)(dw + a * pitch + LANES * k) = acc[a][k];               \
    }                                                                                                     \
    break;

INLINE void sweep(long group, long count, const hit *hits, long found, const float *x, const float *weight, long kh,
                  long line, long pitch, float *dw, float *dx) {
  switch (group * 16 + count) {
    SWEEP(1, 1) SWEEP(1, 2) SWEEP(1, 3) SWEEP(1, 4) SWEEP(1, 5) SWEEP(1, 6) SWEEP(1, 7) SWEEP(1, 8)
    SWEEP(1, 9) SWEEP(1, 10) SWEEP(1, 11) SWEEP(1, 12)
    SWEEP(2, 1) SWEEP(3, 1) SWEEP(4, 1) SWEEP(5, 1) SWEEP(2, 2) SWEEP(3, 2) SWEEP(4, 2) SWEEP(5, 2)
  }
}

/* Kernel rows that are swept together: enough sums side by side to hide the latency of one. */
INLINE long together(const block *s, long count) {
  if (count <= 2)
    for (long group = 5; group > 1; group--)
      if (s->kh % group == 0) return group;
  return 1;
}

/* One example: adds to dw [o][kh][pitch], db and, unless it is NULL, dx. */
INLINE void backward_wide(const float *g, const float *out, const int32_t *where, const float *x, const float *weight,
                          const block *s, long pitch, int relu, float *dw, float *db, float *dx, hit *hits) {
  long line = wide(s) * s->c, count = pitch / LANES, group = together(s, count), most = rows(s) * columns(s) + 1;
  long found[TEAM];
  for (long q = 0; q < s->o; q++) {
    if (q % TEAM == 0 && q + TEAM <= s->o)
      collect(g + q, out + q, where + q, s, TEAM, relu, hits, most, found, db + q);
    else if (q % TEAM == 0)
      collect(g + q, out + q, where + q, s, s->o - q, relu, hits, most, found, db + q);
    for (long k = 0, at = q * s->kh * pitch; k < count; k += MOST)
      sweep(group, count - k < MOST ? count - k : MOST, hits + q % TEAM * most, found[q % TEAM], x + k * LANES,
            weight + at + k * LANES, s->kh, line, pitch, dw + at + k * LANES, dx ? dx + k * LANES : 0);
  }
}

/* Few input channels: as in the forward pass, vectors run along the output channels. With more than FEW entries in a patch
 * row skipping zeros is the faster way again.
 * `spread` holds the gradients of one example and LANES channels at the places of each window that they belong to. */
enum { FEW = 12 };
#define TAPS(COUNT)                                                                                   \
  case COUNT: {                                                                                       \
    vec sum[COUNT];                                                                                   \
    for (int t = 0; t < COUNT; t++) sum[t] = load(a + t * s->o);                                      \
    const float *f = spread;                                                                          \
    for (long i = 0; i < rows(s); i++)                                                                \
      for (long j = 0; j < columns(s); j++)                                                           \
        for (long u = 0; u < s->ph; u++) {                                                            \
          const float *p = x + ((i * s->ph + u + r) * wide(s) + j * s->pw) * s->c;                    \
          for (long v = 0; v < s->pw; v++, p += s->c, f += LANES) {                                   \
            vec g = load(f);                                                                          \
            for (int t = 0; t < COUNT; t++) sum[t] += p[t] * g;                                       \
          }                                                                                           \
        }                                                                                             \
    for (int t = 0; t < COUNT; t++) *(vec *)(a + t * s->o) = sum[t];                                  \
    break;                                                                                            \
  }

/* One example: adds to acc [kh * kw * c][o], the transposed gradient, and to db. */
INLINE void backward_narrow(const float *g, const float *out, const int32_t *where, const float *x, const block *s,
                            int relu, float *acc, float *db, float *spread) {
  int32_t across = (int32_t)s->c, down = (int32_t)(wide(s) * s->c);
  long taps = s->kw * s->c;
  for (long q = 0; q < s->o; q += LANES) {
    for (long k = 0; k < LANES; k += HALF) {
      half bias = *(half *)(db + q + k);
      float *f = spread + k;
      for (long p = 0, at = q + k; p < rows(s) * columns(s); p++, at += s->o) {
        half v = *(const half *)(g + at);
        if (relu) v = (half)((ihalf)v & ~(*(const half *)(out + at) <= (half){0}));
        ihalf place = *(const ihalf *)(where + at);
        bias += v;
        for (int32_t u = 0; u < s->ph; u++)
          for (int32_t w = 0; w < s->pw; w++, f += LANES)
            *(half *)f = (half)((ihalf)v & (place == (ihalf){0} + (u * down + w * across)));
      }
      *(half *)(db + q + k) = bias;
    }
    for (long r = 0; r < s->kh; r++) {
      float *a = acc + r * taps * s->o + q;
      switch (taps) {
        TAPS(1) TAPS(2) TAPS(3) TAPS(4) TAPS(5) TAPS(6) TAPS(7) TAPS(8) TAPS(9) TAPS(10) TAPS(11) TAPS(12)
      }
    }
  }
}

/* Floats for either way through the gradients of one example: spread, or as hits. */
INLINE long gradients(const block *s) {
  long places = rows(s) * columns(s), spread = places * s->ph * s->pw * LANES, hits = 2 * TEAM * (places + 1);
  return narrow(s) && spread > hits ? spread : hits;
}

/* Floats of scratch for `sordino_backward`: those; weights and their gradient in rows of whole vectors; an example and its
 * gradient inside the padding, with room for the vector that the last patch may begin. */
EXPORT long sordino_backward_scratch(const block *s) {
  return gradients(s) + 2 * s->o * s->kh * vectors(s->kw * s->c) * LANES + 2 * (high(s) * wide(s) * s->c + LANES);
}

/* Gradients of sum(g * relu(pool(conv(x)))) by the weights, the bias and (unless dx is NULL) the input; all overwritten.
 * With `each` those of every example by itself: dw [n][o][kh][kw][c], db [n][o]. */
EXPORT WIDEST void sordino_backward(const float *g, const float *out, const int32_t *where, const float *x,
                                    const float *weight, const block *given, int relu, int each, float *dw, float *db,
                                    float *dx, float *scratch) {
  const block s = *given;
  long row = s.kw * s.c, pitch = vectors(row) * LANES, lines = s.o * s.kh, size = s.kh * row;
  long input = s.h * s.w * s.c, room = high(&s) * wide(&s) * s.c + LANES, pooled = rows(&s) * columns(&s) * s.o;
  float *w = scratch + gradients(&s), *sum = w + lines * pitch, *inside = sum + lines * pitch, *back = inside + room;
  /* Rows of whole vectors are added up where they belong; without padding the input too is used where it is. */
  int thin = !dx && narrow(&s) && row <= FEW, even = !thin && pitch == row, bare = (thin || even) && !s.top && !s.left;
  if (!each) memset(db, 0, s.o * sizeof(float)), memset(dw, 0, lines * row * sizeof(float));
  if (!even) memset(w, 0, 2 * lines * pitch * sizeof(float));
  if (!bare) memset(inside, 0, room * sizeof(float));
  for (long r = 0; r < lines && !even; r++) memcpy(w + r * pitch, weight + r * row, row * sizeof(float));
  for (long b = 0; b < s.n; b++, g += pooled, out += pooled, where += pooled, x += input) {
    if (!bare) put_inside(x, &s, inside);
    const float *xb = bare ? x : inside;
    float *dwb = each ? dw + b * lines * row : dw, *dbb = each ? db + b * s.o : db;
    float *dxb = !dx ? 0 : bare ? dx + b * input : back;
    if (each) memset(dbb, 0, s.o * sizeof(float)), memset(dwb, 0, lines * row * sizeof(float));
    if (dx) memset(dxb, 0, (bare ? input : room) * sizeof(float));
    if (thin)
      backward_narrow(g, out, where, xb, &s, relu, sum, dbb, scratch);
    else
      backward_wide(g, out, where, xb, even ? weight : w, &s, pitch, relu, even ? dwb : sum, dbb, dxb, (hit *)scratch);
    if (dx && !bare) take_inside(back, &s, dx + b * input);
    if (even || (!each && b < s.n - 1)) continue;
    for (long q = 0; q < s.o && thin; q++)
      for (long t = 0; t < size; t++) dwb[q * size + t] = sum[t * s.o + q];
    for (long r = 0; r < lines && !thin; r++) memcpy(dwb + r * row, sum + r * pitch, row * sizeof(float));
    memset(sum, 0, lines * pitch * sizeof(float));
  }
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

/* out [d] = sum of f[i] x[i], rows in their order. Rows whose factor is zero are not read: they may hold NaN. */
enum { TILE = 1024, ABREAST = 4 };
EXPORT WIDEST void sordino_weighted(const float *x, const double *f, long n, long d, double *out) {
  memset(out, 0, d * sizeof(double));
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

/* out [o][d] = sum of w[i] x[i]' for weights w [n][o] in double precision: four columns of up to ten outputs in registers. The
 * lines of the next columns are asked for ahead, since each row lies on another page. */
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
EXPORT WIDEST void sordino_outer(const float *x, const double *w, long n, long d, long o, double *out) {
  long from = 0;
  for (; from + QUAD <= d; from += QUAD) {
    if (from % LANES == 0)
      for (long i = 0; i < n; i++) __builtin_prefetch(x + i * d + from + LANES);
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
enum { ABOVE = 4, ASIDE = 3 };

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
 * such an example gets NaN, as one whose scores are not finite does, and whoever clips drops it. scratch: 4 o doubles. */
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
