/* Tilewise: attention kernels for LLM inference. C ABI (C99), the one source for C++, Rust and
 * Python.
 *
 * Every struct starts with `struct_size` (set it to sizeof). A smaller size means that the missing
 * tail is zero; a larger one is accepted if its unknown tail is zero. A zeroed struct is a sane
 * default. Strides are in elements; input strides may be negative, outputs must not overlap
 * themselves or an input. Pointers are memory of the target device, except where a field says
 * "host". The library never allocates on a call, synchronises, prints or throws. Every function is
 * re-entrant. */
#ifndef TILEWISE_TILEWISE_H_
#define TILEWISE_TILEWISE_H_

#include <stddef.h>
#include <stdint.h>

#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Status of a call. The text of the last failure on this thread: tw_last_error(). */
typedef int32_t tw_status;
enum {
  TW_OK = 0,
  TW_INVALID_ARGUMENT = 1,    /* an argument contradicts the contract; nothing was written */
  TW_UNSUPPORTED = 2,         /* valid, but this build or device does not do it */
  TW_WORKSPACE_TOO_SMALL = 3, /* the text names the bytes needed */
  TW_BACKEND_ERROR = 4,       /* the device or its driver reported an error */
  TW_INTERNAL = 5             /* a fault of the library; please report it */
};

typedef int32_t tw_dtype;
enum { TW_DTYPE_DEFAULT = 0, TW_DTYPE_BF16 = 1, TW_DTYPE_FP16 = 2, TW_DTYPE_FP32 = 3 };

typedef int32_t tw_device_kind;
enum { TW_DEVICE_CPU = 0, TW_DEVICE_CUDA = 1 };

/* Runs task(context, i) for every i in [0, tasks), in any order and on any threads, and returns
 * after all. */
typedef void (*tw_task)(void* context, int64_t index);
typedef void (*tw_parallel_for)(void* user, int64_t tasks, tw_task task, void* context);

/* Where a call runs. A null pointer to this struct means: CPU, the library's own threads. */
typedef struct tw_target {
  uint32_t struct_size;
  tw_device_kind device_kind;
  int32_t device_index; /* CUDA: made current for the call's duration, then restored */
  int32_t threads;      /* CPU: workers of a call, 0 = one per core; never changes a result */
  void* stream;         /* CUDA stream */
  tw_parallel_for parallel_for; /* CPU, host: null = the library's pool */
  void* parallel_user;          /* CPU, host: first argument of parallel_for */
} tw_target;

/* First fault in data that only the device can read (lengths, tables, positions). The call clamps
 * the value or treats its row as not there, and goes on. The caller clears the record (all zero).
 */
typedef struct tw_status_record {
  int32_t code;    /* TW_FAULT_*, 0 = none */
  int32_t what;    /* TW_WHAT_* */
  int32_t request; /* which request */
  int32_t row;     /* row, page slot or token inside the request, -1 if it has none */
  int64_t value;   /* what was read */
} tw_status_record;
enum {
  TW_FAULT_NONE = 0,
  TW_FAULT_NEGATIVE = 1,    /* below zero where that has no meaning: read as 0 or as not there */
  TW_FAULT_ABOVE_BOUND = 2, /* above a bound or capacity: clamped, or not there */
  TW_FAULT_DISAGREES = 3    /* contradicts another argument (append with q_start, falling indptr) */
};
enum {
  TW_WHAT_KV_LEN = 1,
  TW_WHAT_Q_INDPTR = 2,
  TW_WHAT_KV_INDPTR = 3,
  TW_WHAT_PAGE_INDPTR = 4,
  TW_WHAT_LAST_PAGE_LEN = 5,
  TW_WHAT_PAGE_ROW = 6,
  TW_WHAT_PAGE_ID = 7,
  TW_WHAT_FIRST_PAGE = 8,
  TW_WHAT_POSITION = 9,
  TW_WHAT_Q_START = 10,
  TW_WHAT_SLOT = 11,
  TW_WHAT_BATCH_INDEX = 12,
  TW_WHAT_MASK = 13
};

/* A K/V cache of `batch` requests. The address of key j of request r, head h is
 *   contiguous (page_size 0):        k + r*k_batch_stride + j*k_token_stride + h*k_head_stride
 *   packed (and kv_indptr given):    k + (kv_indptr[r] + j)*k_token_stride + h*k_head_stride
 *   paged (page_size > 0):           k + page*k_batch_stride + (j % page_size)*k_token_stride
 *                                      + h*k_head_stride
 * where page is entry j/page_size - first_page[r] of the request's part of the page table.
 *
 * A page id of -1 is an expected hole: its keys are invisible. Any other id outside [0, num_pages)
 * is a fault: invisible too, and recorded when it lies inside some row's visible range. */
typedef struct tw_kv_cache {
  uint32_t struct_size;
  int32_t page_size; /* rows of a page; 0 = contiguous or packed */
  void *k, *v;
  int64_t k_batch_stride, k_token_stride, k_head_stride;
  int64_t v_batch_stride, v_token_stride, v_head_stride;
  int64_t kv_capacity; /* rows of a request (contiguous; 0 = max_kv_len) or of all (packed) */
  /* Lengths, exactly one of: kv_lens; kv_indptr; page_indptr with last_page_len; the host scalar
   * kv_len. They are absolute: released front pages and the rows that this call appends count. */
  const int32_t* kv_lens;       /* [batch] */
  const int32_t* kv_indptr;     /* [batch + 1] */
  const int32_t* last_page_len; /* [batch], 1..page_size; needs page_indptr */
  int32_t kv_len; /* host, the same for all requests; used when no pointer above is given */
  int32_t page_table_width; /* entries of a row of page_table */
  /* Page table, block or token form: row page_rows[r] (or r) of page_table; */
  const int32_t* page_table;
  int64_t page_row_stride;  /* 0 = page_table_width */
  int64_t page_table_rows;  /* rows of page_table */
  const int32_t* page_rows; /* [batch], null = request r reads row r */
  /* or CSR form: entries page_indptr[r] .. page_indptr[r+1] of page_table. */
  const int32_t* page_indptr; /* [batch + 1] */
  int64_t page_indices_len;   /* entries of page_table in the CSR form */
  const int32_t* first_page;  /* [batch], number of the first resident page, null = 0 */
  int64_t num_pages;          /* pages of the pool */
} tw_kv_cache;

/* Boolean mask: byte != 0 keeps the key. Byte of request r, head h, row i, key j:
 * data + r*batch_stride (or mask_offset[r]) + h*head_stride + i*row_stride + (j - first_key[r]),
 * for first_key[r] <= j < first_key[r] + width. Keys before first_key are kept, keys at or past its
 * end are not. */
typedef struct tw_mask {
  uint32_t struct_size;
  int32_t width; /* keys of a mask row */
  const uint8_t* data;
  int64_t batch_stride, head_stride, row_stride; /* 0 = broadcast */
  const int64_t* offset;    /* [batch], replaces r*batch_stride (ragged masks) */
  const int32_t* first_key; /* [batch], null = 0 */
  int64_t bytes;            /* extent of data; 0 = not checked on the device */
} tw_mask;

/* Rows to append: row i of request r, head h at k + r*k_batch_stride + row*k_token_stride +
 * h*k_head_stride, row as in q; its position is kv_len - q_len + i. */
typedef struct tw_new_kv {
  uint32_t struct_size;
  tw_dtype dtype; /* 0 = kv_dtype; converted to kv_dtype with round to nearest even */
  const void *k, *v;
  int64_t k_batch_stride, k_token_stride, k_head_stride;
  int64_t v_batch_stride, v_token_stride, v_head_stride;
} tw_new_kv;

/* Flags of tw_attention. */
enum {
  TW_CAUSAL = 1 << 0,
  TW_WINDOW_LEFT = 1 << 1,
  TW_WINDOW_RIGHT = 1 << 2,
  TW_PDL = 1 << 3 /* CUDA: allow programmatic dependent launch */
};

/* Which body serves a request; results of two classes may differ in bits. */
typedef int32_t tw_row_class;
enum { TW_CLASS_AUTO = 0, TW_CLASS_D = 1, TW_CLASS_P = 2 };

/* Attention. pos = q_start[r] + i, or q_positions; default q_start = kv_len - q_len (bottom-right).
 * Key j is visible iff 0 <= j < kv_len, CAUSAL: j <= pos, WINDOW_LEFT: j >= pos - window_left,
 * WINDOW_RIGHT: j <= pos + window_right, the mask keeps it, and its page is present. logit =
 * cap(scale * q.k) - slope * |pos - j|, cap(x) = softcap * tanh(x / softcap). A row that sees
 * nothing gives o = 0 and lse = -inf. */
typedef struct tw_attention_args {
  uint32_t struct_size;
  uint32_t flags;
  const tw_target* target; /* host; null = CPU */
  tw_dtype q_dtype;        /* required */
  tw_dtype kv_dtype;       /* 0 = q_dtype */
  tw_dtype o_dtype;        /* 0 = q_dtype; or fp32 */
  int32_t batch, q_heads, kv_heads;
  int32_t head_dim;   /* a multiple of 8 up to 512 */
  int32_t v_head_dim; /* 0 = head_dim; likewise */
  int32_t q_len;      /* dense: rows of every request */
  int32_t max_q_len;  /* ragged: bound of every request's rows, 0 = total_q */
  int32_t max_kv_len; /* bound of every length, 0 = the cache's capacity */
  tw_row_class row_class;
  const int32_t* q_indptr; /* [batch + 1]: ragged q; null = dense */
  int64_t total_q;         /* ragged: rows of q, o and lse */
  /* Row i of request r, head h: q + r*q_batch_stride + row*q_token_stride + h*q_head_stride with
   * row = i (dense) or q_indptr[r] + i (ragged); o and lse likewise. */
  const void* q;
  int64_t q_batch_stride, q_token_stride, q_head_stride;
  void* o;
  int64_t o_batch_stride, o_token_stride, o_head_stride;
  float* lse; /* optional, natural log */
  int64_t lse_batch_stride, lse_row_stride, lse_head_stride;
  const tw_kv_cache* kv;             /* host struct */
  const tw_new_kv* append;           /* host struct, optional */
  const tw_mask* mask;               /* host struct, optional */
  float scale;                       /* 0 = 1/sqrt(head_dim) */
  float softcap;                     /* 0 = off */
  int32_t window_left, window_right; /* inclusive distances: N keys with self = N - 1 */
  const float* alibi_slopes;         /* [q_heads], or [batch, q_heads] with the stride below */
  int64_t alibi_batch_stride;        /* 0 = the same slopes for every request */
  const float* sinks;     /* [q_heads]; adds exp(sink - max) to the denominator, not part of lse */
  const int32_t* q_start; /* [batch] */
  const int32_t* q_positions; /* [rows]: total_q ragged, batch*q_len dense; overrides q_start + i */
  const float *k_scale, *v_scale; /* reserved for 8-bit caches: must be null */
  const void* bias;               /* additive bias: reserved, must be null */
  int32_t kv_shared;              /* V is a prefix of K's row: reserved, must be 0 */
  int32_t variant;                /* 0 = auto; a number from tw_attention_explain forces it */
  tw_status_record* status;       /* optional */
  void* workspace;                /* 256-byte aligned, any contents */
  uint64_t workspace_bytes;
} tw_attention_args;

TW_API tw_status tw_attention(const tw_attention_args* args);

/* Bytes of workspace that `args` needs for any device contents within its bounds, at most 256 MiB.
 * Reads no device memory. */
TW_API tw_status tw_attention_workspace(const tw_attention_args* args, uint64_t* bytes);

/* Writes what would run and why as text, always null-terminated and cut at `capacity`; *length, if
 * given, receives the whole text's length without the terminator. Reads no device memory. */
TW_API tw_status tw_attention_explain(const tw_attention_args* args, char* text, size_t capacity,
                                      size_t* length);

typedef int32_t tw_norm_mode;
enum { TW_NORM_NONE = 0, TW_NORM_WEIGHT = 1, TW_NORM_ONE_PLUS_WEIGHT = 2 };
/* Once: bf16(x*inv*w). Two steps: bf16(bf16(x*inv)*w), and each product of the rotation rounded. */
typedef int32_t tw_norm_rounding;
enum { TW_ROUND_ONCE = 0, TW_ROUND_TWO_STEP = 1 };
/* V as it comes; weightless RMS of V; weightless RMS of the raw K (v must be null). */
typedef int32_t tw_v_mode;
enum { TW_V_COPY = 0, TW_V_RMS = 1, TW_V_FROM_RAW_K = 2 };
/* Pairs (d, d + rotary_dim/2), or (2d, 2d + 1). */
typedef int32_t tw_pair_style;
enum { TW_PAIRS_HALVES = 0, TW_PAIRS_INTERLEAVED = 1 };

/* Rotary table: entry d of position p at cos + p*cos_row_stride + d*cos_element_stride, d <
 * rotary_dim/2. */
typedef struct tw_rope_table {
  uint32_t struct_size;
  tw_dtype dtype; /* 0 = fp32; or bf16 */
  const void *cos, *sin;
  int64_t cos_row_stride, cos_element_stride; /* element stride 0 = 1 */
  int64_t sin_row_stride, sin_element_stride;
  int64_t rows;       /* positions outside [0, rows) are refused before the table is read */
  int32_t rotary_dim; /* even, <= head_dim; the rest of a row passes unrotated */
  tw_pair_style pairs;
} tw_rope_table;

/* The step before attention: RMS norm of q and k, rotary embedding, V mode, write of K and V into
 * the cache. Position of row i of request r: positions[row], or start[r] + i, or kv_len - q_len + i
 * if both are null and a cache is given (else i). A row with a bad position or slot is left out of
 * every output that needs it, and recorded. */
typedef struct tw_qk_prep_args {
  uint32_t struct_size;
  tw_dtype dtype; /* of q, k, v, q_out, k_out; required */
  const tw_target* target;
  tw_dtype kv_dtype; /* of the cache, 0 = dtype */
  int32_t batch, q_len;
  int32_t q_heads, kv_heads; /* either may be 0 when its input is null */
  int32_t head_dim;          /* any multiple of 8 up to 512 */
  int32_t max_kv_len;        /* bound of the cache's lengths, 0 = its capacity */
  int32_t reserved0;
  const int32_t* q_indptr; /* [batch + 1] */
  int64_t total_q;
  const void *q, *k, *v;
  int64_t q_batch_stride, q_token_stride, q_head_stride;
  int64_t k_batch_stride, k_token_stride, k_head_stride;
  int64_t v_batch_stride, v_token_stride, v_head_stride;
  void *q_out, *k_out, *v_out; /* each optional; in place where strides are equal */
  int64_t q_out_batch_stride, q_out_token_stride, q_out_head_stride;
  int64_t k_out_batch_stride, k_out_token_stride, k_out_head_stride;
  int64_t v_out_batch_stride, v_out_token_stride, v_out_head_stride;
  tw_norm_mode norm;
  tw_norm_rounding rounding;
  tw_dtype weight_dtype;           /* 0 = dtype */
  float eps;                       /* >= 0, finite */
  const void *q_weight, *k_weight; /* [head_dim] */
  tw_v_mode v_mode;
  int32_t reserved1;
  const tw_rope_table* rope; /* host struct; null = no rotation */
  const int32_t* positions;  /* [rows] */
  const int32_t* start;      /* [batch] */
  const tw_kv_cache* kv;     /* host struct, optional: K and V are written there */
  /* [rows], replaces lengths and page table: page*page_size + offset, or a row of a packed cache;
   * -1 = skip. */
  const int32_t* slot_mapping;
  tw_status_record* status;
} tw_qk_prep_args;

TW_API tw_status tw_qk_prep(const tw_qk_prep_args* args);

/* Rotary embedding of x [rows, heads, head_dim], in place or not. Positions as in tw_qk_prep. */
typedef struct tw_rope_args {
  uint32_t struct_size;
  tw_dtype dtype;
  const tw_target* target;
  int32_t batch, q_len, heads, head_dim;
  const int32_t* q_indptr;
  int64_t total_q;
  const void* x;
  int64_t x_batch_stride, x_token_stride, x_head_stride;
  void* out; /* null = in place, with x's strides */
  int64_t out_batch_stride, out_token_stride, out_head_stride;
  const tw_rope_table* rope; /* host struct, required */
  const int32_t* positions;
  const int32_t* start;
  tw_status_record* status;
} tw_rope_args;

TW_API tw_status tw_rope(const tw_rope_args* args);

/* Writes K/V rows into a cache. Rows: dense or ragged (q_indptr), aligned to the end of each
 * request; or total_q rows with (batch_indices, positions), or with slot_mapping (-1 = skip). */
typedef struct tw_kv_append_args {
  uint32_t struct_size;
  tw_dtype kv_dtype; /* of the cache, required */
  const tw_target* target;
  int32_t batch, q_len, kv_heads, head_dim, v_head_dim, max_kv_len;
  const int32_t* q_indptr;
  int64_t total_q;
  const tw_new_kv* rows;        /* host struct, required; dtype 0 = kv_dtype */
  const tw_kv_cache* kv;        /* host struct, required */
  const int32_t* batch_indices; /* [total_q] */
  const int32_t* positions;     /* [total_q] */
  const int32_t* slot_mapping;  /* [total_q] */
  tw_status_record* status;
} tw_kv_append_args;

TW_API tw_status tw_kv_append(const tw_kv_append_args* args);

/* Merges n partial results over disjoint keys, ascending. State s, row i, head h: o +
 * s*o_state_stride + i*o_row_stride + ... An empty state has lse -inf; its o is not read. n = 0
 * gives o = 0, lse = -inf. Sinks enter once. */
typedef struct tw_merge_states_args {
  uint32_t struct_size;
  tw_dtype dtype; /* of o, required */
  const tw_target* target;
  tw_dtype out_dtype; /* 0 = dtype */
  int32_t states, heads, v_head_dim;
  int64_t rows;
  const void* o;
  int64_t o_state_stride, o_row_stride, o_head_stride;
  const float* lse;
  int64_t lse_state_stride, lse_row_stride, lse_head_stride;
  const float* sinks; /* [heads], optional */
  void* out;          /* may be o's state 0 with its strides */
  int64_t out_row_stride, out_head_stride;
  float* out_lse; /* optional */
  int64_t out_lse_row_stride, out_lse_head_stride;
} tw_merge_states_args;

TW_API tw_status tw_merge_states(const tw_merge_states_args* args);

/* o *= sigmoid(gate), elementwise in place; rounded once. */
typedef struct tw_output_gate_args {
  uint32_t struct_size;
  tw_dtype dtype;
  const tw_target* target;
  int64_t rows;
  int32_t heads, head_dim;
  void* o;
  int64_t o_row_stride, o_head_stride;
  const void* gate;
  int64_t gate_row_stride, gate_head_stride;
} tw_output_gate_args;

TW_API tw_status tw_output_gate(const tw_output_gate_args* args);

/* In place on n contiguous elements: value * tanh(x / value) with value > 0; x * value. */
typedef struct tw_elementwise_args {
  uint32_t struct_size;
  tw_dtype dtype;
  const tw_target* target;
  void* x;
  int64_t n;
  float value; /* finite */
  int32_t reserved0;
} tw_elementwise_args;

TW_API tw_status tw_softcap(const tw_elementwise_args* args);
TW_API tw_status tw_scale(const tw_elementwise_args* args);

/* Discovery. Texts live as long as the library, tw_last_error's until this thread's next call: it
 * is never null, empty after a success, cleared on entry of every call that returns tw_status.
 * tw_build_info has "key: value" lines: version, compiler, backends, instruction sets in use. */
TW_API uint32_t tw_version(void); /* major << 16 | minor << 8 | patch */
TW_API const char* tw_build_info(void);
TW_API const char* tw_last_error(void);
TW_API const char* tw_status_string(tw_status status);
/* 1 if tw_attention takes these types and dims on this kind of device in this build, else 0. */
TW_API int32_t tw_supports(tw_device_kind kind, tw_dtype q_dtype, tw_dtype kv_dtype,
                           int32_t head_dim, int32_t v_head_dim);

#ifdef __cplusplus
}
#endif

#endif /* TILEWISE_TILEWISE_H_ */
