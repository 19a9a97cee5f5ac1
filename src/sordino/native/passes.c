/* Gradient matching on small networks: four passes through a chain of layers, each pass in one call, on one thread.
 *
 * Why by hand: the layers of the attacked networks are so small that a library spends more time on preparing a call than on its
 * arithmetic. Behind ReLU and pooling most cotangents are zero; here they are skipped.
 *
 *   forward   the value y of every layer
 *   gradient  the cotangent `out` of every layer, and the gradient of each group of examples
 *   tangent   dy of every layer, while the parameters of each group move along v
 *   reverse   the derivative by the input of <gradient, v>; the cotangents of dy are those of `gradient`, scaled
 *
 * Layouts: activations [n][height][width][channels], weights [out][kernel height][kernel width][in], contiguous floats. A dense layer is
 * a convolution of an image of one pixel. attacks/inversion/layers.py has the same passes in PyTorch; tests compare them.
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

enum { LANES = 8, ROWS = 4, WIDE = 8 };
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float half __attribute__((vector_size(2 * LANES)));
typedef int32_t bits __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
enum kind { PRODUCT, RELU, SIGMOID, TANH, MAX_POOL, MEAN_POOL, FLATTEN };

typedef struct {
  long kind;
  long h, w, c, oh, ow, o; /* of the input and of the output */
  long kh, kw, sh, sw, top, left;
  long at;                     /* where its parameters begin in those of a group */
  const float *weight, *bias;  /* [o][kh * kw * c], and [o] or NULL */
  float *rows, *drows;         /* patches of the input and of its tangent [n][oh * ow][kh * kw * c]; a dense layer has none */
  float *y, *dy, *out, *bar;   /* the output: value, tangent, and cotangents of `gradient` and of `reverse` */
  float *slope;                /* of a pointwise function */
  int32_t *taken;              /* by max pooling: the place in the example's input */
} layer;

typedef struct {
  long count, first, n; /* layers, the first one with parameters, examples */
  long size;            /* parameters of a group */
  layer *layers;
  float *padded; /* one example inside its padding */
  float *patch;  /* one patch of it */
  float *turned; /* the weight of a convolution, [kh * kw * c][o], o being filled up to whole vectors */
  float *by;     /* factors that are not zero ... */
  int32_t *at;   /* ... and their rows */
} chain;

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE long inside(const layer *l) { return l->h * l->w * l->c; }
INLINE long outside(const layer *l) { return l->oh * l->ow * l->o; }
INLINE long patch(const layer *l) { return l->kh * l->kw * l->c; }
INLINE float total(vec a) {
  half s = (half){a[0], a[1], a[2], a[3]} + (half){a[4], a[5], a[6], a[7]};
  return (s[0] + s[2]) + (s[1] + s[3]);
}

/* A row seldom has a whole number of vectors. What is left is the end of one last vector that begins before it: `rest` has ones there. */
static const int32_t ENDS[2 * LANES] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
INLINE bits rest(long k) { return *(const bits *)(ENDS + k % LANES); }
static const bits COUNT = {0, 1, 2, 3, 4, 5, 6, 7};
INLINE vec only(vec a, bits where) { return (vec)((bits)a & where); }

/* ---- the two products ------------------------------------------------------------------------------------------------ */

/* out[p][q] += <a[p], w[q]> for `p` rows of a and `q` of w; both numbers are known to the compiler. */
INLINE void dots_block(const float *a, const float *w, long k, long o, const int p, const int q, float *out) {
  vec s[2][ROWS];
  for (int i = 0; i < p; i++)
    for (int j = 0; j < q; j++) s[i][j] = (vec){0};
  long t = 0;
  for (; t + LANES <= k; t += LANES)
    for (int i = 0; i < p; i++) {
      vec x = load(a + i * k + t);
      for (int j = 0; j < q; j++) s[i][j] += x * load(w + j * k + t);
    }
  if (t < k && k >= LANES) {
    bits where = rest(k);
    t = k;
    for (int i = 0; i < p; i++) {
      vec x = only(load(a + i * k + k - LANES), where);
      for (int j = 0; j < q; j++) s[i][j] += x * load(w + j * k + k - LANES);
    }
  }
  for (int i = 0; i < p; i++)
    for (int j = 0; j < q; j++) {
      float r = total(s[i][j]);
      for (long u = t; u < k; u++) r += a[i * k + u] * w[j * k + u];
      out[i * o + j] += r;
    }
}

INLINE void dots_rows(const float *a, const float *w, long k, long o, const int p, float *out) {
  long q = 0;
  for (; q + ROWS <= o; q += ROWS) dots_block(a, w + q * k, k, o, p, ROWS, out + q);
  for (; q < o; q++) dots_block(a, w + q * k, k, o, p, 1, out + q);
}

/* out[count][o] += a[count][k] times the transpose of w[o][k] */
INLINE void dots(const float *a, const float *w, long count, long k, long o, float *out) {
  long p = 0;
  for (; p + 2 <= count; p += 2) dots_rows(a + p * k, w, k, o, 2, out + p * o);
  if (p < count) dots_rows(a + p * k, w, k, o, 1, out + p * o);
}

/* out[p][lanes] += a[p] times the turned w, for `p` rows and two vectors of outputs, of which `o` are left */
INLINE void turned_block(const float *a, const float *turned, long k, long line, long o, long left, const int p, float *out) {
  vec s[ROWS][2];
  for (int i = 0; i < p; i++) s[i][0] = s[i][1] = (vec){0};
  for (long t = 0; t < k; t++) {
    vec w0 = load(turned + t * line), w1 = load(turned + t * line + LANES);
    for (int i = 0; i < p; i++) s[i][0] += a[i * k + t] * w0, s[i][1] += a[i * k + t] * w1;
  }
  for (int i = 0; i < p; i++)
    for (int j = 0; j < 2; j++)
      for (int q = 0; q < LANES && j * LANES + q < left; q++) out[i * o + j * LANES + q] += s[i][j][q];
}

INLINE long lines(long o) { return (o + 2 * LANES - 1) / (2 * LANES) * (2 * LANES); }

/* As `dots`, for many rows: outputs lie side by side in a vector, so that nothing has to be added up across it. */
INLINE void turned_dots(const float *a, const float *w, long count, long k, long o, float *turned, float *out) {
  long line = lines(o);
  for (long t = 0; t < k; t++)
    for (long q = 0; q < line; q++) turned[t * line + q] = q < o ? w[q * k + t] : 0.0f;
  for (long q = 0; q < o; q += 2 * LANES) {
    long p = 0;
    for (; p + ROWS <= count; p += ROWS) turned_block(a + p * k, turned + q, k, line, o, o - q, ROWS, out + p * o + q);
    for (; p < count; p++) turned_block(a + p * k, turned + q, k, line, o, o - q, 1, out + p * o + q);
  }
}

/* Those of `count` factors, `step` apart, that are not zero. */
INLINE long gather(const float *s, long step, long count, float scale, float *by, int32_t *at) {
  long m = 0;
  for (long j = 0; j < count; j++) {
    float v = s[j * step];
    by[m] = v * scale, at[m] = (int32_t)j;
    m += v != 0.0f;
  }
  return m;
}

/* `p` vectors of a sum of rows, held in registers while the rows go by. Of the last vector of a row only the part `where` counts. */
INLINE void added_block(const float *by, const int32_t *at, long m, const float *b, long line, const int p, int add,
                        const bits *where, float *out) {
  vec s[WIDE];
  for (int i = 0; i < p; i++) s[i] = add ? load(out + i * LANES) : where ? only(load(out), ~*where) : (vec){0};
  for (long j = 0; j < m; j++) {
    const float *r = b + at[j] * line;
    for (int i = 0; i < p; i++) s[i] += by[j] * (where ? only(load(r), *where) : load(r + i * LANES));
  }
  for (int i = 0; i < p; i++) *(vec *)(out + i * LANES) = s[i];
}

/* out[k] = (or, if `add`, +=) the sum of by[j] times row at[j] of b, whose rows are `line` apart */
INLINE void rows_added(const float *by, const int32_t *at, long m, const float *b, long line, long k, int add, float *out) {
  long t = 0;
  for (; t + WIDE * LANES <= k; t += WIDE * LANES) added_block(by, at, m, b + t, line, WIDE, add, NULL, out + t);
  for (; t + 2 * LANES <= k; t += 2 * LANES) added_block(by, at, m, b + t, line, 2, add, NULL, out + t);
  for (; t + LANES <= k; t += LANES) added_block(by, at, m, b + t, line, 1, add, NULL, out + t);
  if (t < k && k >= LANES) {
    bits where = rest(k);
    added_block(by, at, m, b + k - LANES, line, 1, add, &where, out + k - LANES);
    return;
  }
  for (; t < k; t++) {
    float s = add ? out[t] : 0.0f;
    for (long j = 0; j < m; j++) s += by[j] * b[at[j] * line + t];
    out[t] = s;
  }
}

/* ---- convolutions and dense layers ----------------------------------------------------------------------------------- */

INLINE long wide(const layer *l) { return l->w + 2 * l->left; }
INLINE long high(const layer *l) { return l->h + 2 * l->top; }

/* Patches of n images; a dense layer has its input for a row. */
INLINE const float *patches(const chain *c, const layer *l, const float *x, float *rows) {
  if (!rows) return x;
  long line = wide(l) * l->c, run = l->kw * l->c;
  float *to = rows;
  for (long e = 0; e < c->n; e++, x += inside(l)) {
    const float *from = x;
    if (l->top || l->left) {
      memset(c->padded, 0, high(l) * line * sizeof(float));
      for (long i = 0; i < l->h; i++)
        memcpy(c->padded + (i + l->top) * line + l->left * l->c, x + i * l->w * l->c, l->w * l->c * sizeof(float));
      from = c->padded;
    }
    for (long i = 0; i < l->oh; i++)
      for (long j = 0; j < l->ow; j++)
        for (long u = 0; u < l->kh; u++, to += run) {
          const float *here = from + (i * l->sh + u) * line + j * l->sw * l->c;
          for (long t = 0; t < run; t++) to[t] = here[t];
        }
  }
  return rows;
}

INLINE void begin(float *y, const float *bias, long count, long o) {
  if (!bias) memset(y, 0, count * o * sizeof(float));
  else
    for (long p = 0; p < count; p++) memcpy(y + p * o, bias, o * sizeof(float));
}

INLINE void times(const chain *c, const layer *l, const float *rows, const float *w, long count, float *y) {
  if (l->rows) turned_dots(rows, w, count, patch(l), l->o, c->turned, y);
  else dots(rows, w, count, patch(l), l->o, y);
}

INLINE void product_forward(const chain *c, const layer *l, const float *x) {
  long count = c->n * l->oh * l->ow;
  begin(l->y, l->bias, count, l->o);
  times(c, l, patches(c, l, x, l->rows), l->weight, count, l->y);
}

INLINE void product_gradient(const chain *c, const layer *l, const float *x, long groups, float *g) {
  long k = patch(l), count = c->n / groups * l->oh * l->ow;
  const float *rows = l->rows ? l->rows : x, *out = l->out;
  for (long a = 0; a < groups; a++, rows += count * k, out += count * l->o) {
    float *to = g + a * c->size + l->at;
    for (long q = 0; q < l->o; q++) {
      long m = gather(out + q, l->o, count, 1.0f, c->by, c->at);
      rows_added(c->by, c->at, m, rows, k, k, 0, to + q * k);
      if (!l->bias) continue;
      float s = 0.0f;
      for (long j = 0; j < m; j++) s += c->by[j];
      to[l->o * k + q] = s;
    }
  }
}

/* One example's cotangent of the input: `out` times the weight, and if there is `v` also `more` (times `scale`) times v. */
INLINE void product_back(const chain *c, const layer *l, const float *out, const float *more, const float *v, float scale,
                         float *to) {
  long k = patch(l), line = wide(l) * l->c, run = l->kw * l->c;
  int inner = l->rows && (l->top || l->left);
  float *image = inner ? c->padded : to;
  memset(image, 0, high(l) * line * sizeof(float));
  for (long i = 0; i < l->oh; i++)
    for (long j = 0; j < l->ow; j++) {
      long from = (i * l->ow + j) * l->o, m = gather(out + from, 1, l->o, 1.0f, c->by, c->at), some = m;
      if (m) rows_added(c->by, c->at, m, l->weight, k, k, 0, c->patch);
      if (v) {
        m = gather(more + from, 1, l->o, scale, c->by, c->at);
        if (m) rows_added(c->by, c->at, m, v, k, k, some > 0, c->patch);
        some += m;
      }
      if (some)
        for (long u = 0; u < l->kh; u++) {
          const float *here = c->patch + u * run;
          float *there = image + (i * l->sh + u) * line + j * l->sw * l->c;
          for (long t = 0; t < run; t++) there[t] += here[t];
        }
    }
  if (inner)
    for (long i = 0; i < l->h; i++)
      memcpy(to + i * l->w * l->c, image + (i + l->top) * line + l->left * l->c, l->w * l->c * sizeof(float));
}

/* dy = V rows + the moving bias + W drows */
INLINE void product_tangent(const chain *c, const layer *l, const float *x, const float *dx, long groups, const float *v) {
  long k = patch(l), o = l->o, count = c->n / groups * l->oh * l->ow;
  const float *rows = l->rows ? l->rows : x, *drows = dx ? patches(c, l, dx, l->drows) : NULL;
  float *dy = l->dy;
  for (long a = 0; a < groups; a++, rows += count * k, dy += count * o) {
    const float *own = v + a * c->size + l->at;
    begin(dy, l->bias ? own + o * k : NULL, count, o);
    times(c, l, rows, own, count, dy);
  }
  if (drows) times(c, l, drows, l->weight, c->n * l->oh * l->ow, l->dy);
}

/* ---- layers without parameters --------------------------------------------------------------------------------------- */

INLINE void point_forward(const chain *c, const layer *l, const float *x) {
  long count = c->n * outside(l);
  for (long t = 0; t < count; t++) {
    float y = l->kind == RELU ? (x[t] > 0.0f ? x[t] : 0.0f) : l->kind == SIGMOID ? 1.0f / (1.0f + expf(-x[t])) : tanhf(x[t]);
    l->y[t] = y;
    l->slope[t] = l->kind == RELU ? (y > 0.0f ? 1.0f : 0.0f) : l->kind == SIGMOID ? y - y * y : 1.0f - y * y;
  }
}

/* The first of the largest wins, as in PyTorch. Channels lie side by side, so that many are compared at once. */
INLINE void max_forward(const chain *c, const layer *l, const float *x) {
  float *y = l->y;
  int32_t *taken = l->taken;
  for (long e = 0; e < c->n; e++, x += inside(l))
    for (long i = 0; i < l->oh; i++)
      for (long j = 0; j < l->ow; j++, y += l->c, taken += l->c) {
        int found = 0;
        for (long u = 0; u < l->kh; u++)
          for (long v = 0; v < l->kw; v++) {
            long r = i * l->sh + u - l->top, s = j * l->sw + v - l->left;
            if (r < 0 || s < 0 || r >= l->h || s >= l->w) continue;
            int32_t here = (int32_t)((r * l->w + s) * l->c);
            long q = 0;
            for (; q + LANES <= l->c; q += LANES) {
              vec new = load(x + here + q), most = load(y + q);
              bits better = found ? (bits)(new > most) : ~(bits){0}, places = COUNT + here + (int32_t)q;
              *(vec *)(y + q) = only(new, better) + only(most, ~better);
              *(bits *)(taken + q) = (places & better) | (*(const bits *)(taken + q) & ~better);
            }
            for (; q < l->c; q++)
              if (!found || x[here + q] > y[q]) y[q] = x[here + q], taken[q] = here + (int32_t)q;
            found = 1;
          }
      }
}

/* From the output to the input (`back`), or from the input to the output. */
INLINE void pool_linear(const chain *c, const layer *l, int back, const float *from, float *to) {
  float share = 1.0f / (l->kh * l->kw);
  long k = outside(l);
  if (back) memset(to, 0, c->n * inside(l) * sizeof(float));
  for (long e = 0; e < c->n; e++, from += back ? k : inside(l), to += back ? inside(l) : k) {
    if (l->kind == MAX_POOL) {
      const int32_t *taken = l->taken + e * k;
      if (back)
        for (long t = 0; t < k; t++) to[taken[t]] += from[t];
      else
        for (long t = 0; t < k; t++) to[t] = from[taken[t]];
      continue;
    }
    if (!back) memset(to, 0, k * sizeof(float));
    for (long i = 0; i < l->oh * l->kh; i++)
      for (long j = 0; j < l->ow * l->kw; j++)
        for (long q = 0; q < l->c; q++) {
          long in = (i * l->w + j) * l->c + q, out = ((i / l->kh) * l->ow + j / l->kw) * l->c + q;
          to[back ? in : out] += share * from[back ? out : in];
        }
  }
}

/* To PyTorch's order (channel, height, width), or back from it. */
INLINE void flatten(const chain *c, const layer *l, int back, const float *from, float *to) {
  long places = l->h * l->w, k = inside(l);
  for (long e = 0; e < c->n; e++, from += k, to += k)
    for (long p = 0; p < places; p++)
      for (long q = 0; q < l->c; q++) {
        long image = p * l->c + q, row = q * places + p;
        to[back ? image : row] = from[back ? row : image];
      }
}

INLINE void linear(const chain *c, const layer *l, int back, const float *from, float *to) {
  if (l->kind == FLATTEN) flatten(c, l, back, from, to);
  else pool_linear(c, l, back, from, to);
}

/* ---- the passes ------------------------------------------------------------------------------------------------------ */

EXPORT WIDEST void sordino_forward_pass(const chain *c, const float *x) {
  for (long i = 0; i < c->count; i++) {
    const layer *l = c->layers + i;
    if (l->kind == PRODUCT) product_forward(c, l, x);
    else if (l->kind <= TANH) point_forward(c, l, x);
    else if (l->kind == MAX_POOL) max_forward(c, l, x);
    else linear(c, l, 0, x, l->y);
    x = l->y;
  }
}

/* After the forward pass of x; `out` of the last layer is given. */
EXPORT WIDEST void sordino_gradient_pass(const chain *c, const float *x, long groups, float *g) {
  for (long i = c->count - 1; i >= c->first; i--) {
    const layer *l = c->layers + i;
    if (l->kind == PRODUCT) product_gradient(c, l, i ? l[-1].y : x, groups, g);
    if (i == c->first) return; /* below it nobody asks for a cotangent */
    float *to = l[-1].out;
    if (l->kind == PRODUCT)
      for (long e = 0; e < c->n; e++) product_back(c, l, l->out + e * outside(l), NULL, NULL, 1.0f, to + e * inside(l));
    else if (l->kind <= TANH)
      for (long t = 0; t < c->n * outside(l); t++) to[t] = l->out[t] * l->slope[t];
    else linear(c, l, 1, l->out, to);
  }
}

/* After the forward pass of x. */
EXPORT WIDEST void sordino_tangent_pass(const chain *c, const float *x, long groups, const float *v) {
  for (long i = c->first; i < c->count; i++) {
    const layer *l = c->layers + i;
    const float *dx = i > c->first ? l[-1].dy : NULL;
    if (l->kind == PRODUCT) product_tangent(c, l, i ? l[-1].y : x, dx, groups, v);
    else if (l->kind <= TANH)
      for (long t = 0; t < c->n * outside(l); t++) l->dy[t] = dx[t] * l->slope[t];
    else linear(c, l, 0, dx, l->dy);
  }
}

/* After the other passes; `bar` of the last layer is given. The cotangent of dy is `out` times the scale of the example. `pushed`: for each
 * layer a cotangent to be added to that of its output, or NULL. */
EXPORT WIDEST void sordino_reverse_pass(const chain *c, long groups, const float *v, const float *scale,
                                        const float *const *pushed, float *below) {
  for (long i = c->count - 1; i >= 0; i--) {
    const layer *l = c->layers + i;
    float *to = i ? l[-1].bar : below;
    long k = outside(l);
    if (pushed && pushed[i])
      for (long t = 0; t < c->n * k; t++) l->bar[t] += pushed[i][t];
    if (l->kind == PRODUCT)
      for (long e = 0; e < c->n; e++) {
        const float *own = v + e / (c->n / groups) * c->size + l->at;
        product_back(c, l, l->bar + e * k, l->out + e * k, own, scale[e], to + e * inside(l));
      }
    else if (l->kind <= TANH) {
      for (long t = 0; t < c->n * k; t++) to[t] = l->bar[t] * l->slope[t];
      if (l->kind != RELU && i > c->first) /* the slope bends */
        for (long e = 0; e < c->n; e++)
          for (long t = e * k; t < (e + 1) * k; t++) {
            float bend = l->kind == SIGMOID ? l->slope[t] * (1.0f - 2.0f * l->y[t]) : -2.0f * l->y[t] * l->slope[t];
            to[t] += scale[e] * l->out[t] * l[-1].dy[t] * bend;
          }
    } else linear(c, l, 1, l->bar, to);
  }
}

/* Python finds the library by importing it; the functions are called through ctypes. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_passes", 0, -1, 0, 0, 0, 0, 0};
EXPORT uint32_t sordino_source(void) { return SORDINO_SOURCE; } /* checksum of this file, from setup.py */

PyMODINIT_FUNC PyInit__passes(void) { return PyModule_Create(&module); }
