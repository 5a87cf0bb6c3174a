/* The C header under -std=c99 -pedantic-errors, and every function it declares, called once with
 * what can be refused: a link or a run that fails names a function that is declared and not there.
 */
#include <stdio.h>
#include <string.h>
#include <tilewise/tilewise.h>

static int failures = 0;

static void expect(int condition, const char* what) {
  if (!condition) {
    printf("failed: %s\n", what);
    ++failures;
  }
}

static void expect_refused(tw_status status, const char* what) {
  expect(status == TW_INVALID_ARGUMENT, what);
  expect(tw_last_error()[0] != '\0', what);
}

static void null_arguments_are_refused(void) {
  uint64_t bytes = 0;
  char text[8];
  expect_refused(tw_attention(NULL), "tw_attention(NULL)");
  expect_refused(tw_attention_workspace(NULL, &bytes), "tw_attention_workspace(NULL)");
  expect_refused(tw_attention_explain(NULL, text, sizeof text, NULL), "tw_attention_explain(NULL)");
  expect_refused(tw_qk_prep(NULL), "tw_qk_prep(NULL)");
  expect_refused(tw_rope(NULL), "tw_rope(NULL)");
  expect_refused(tw_kv_append(NULL), "tw_kv_append(NULL)");
  expect_refused(tw_merge_states(NULL), "tw_merge_states(NULL)");
  expect_refused(tw_output_gate(NULL), "tw_output_gate(NULL)");
  expect_refused(tw_softcap(NULL), "tw_softcap(NULL)");
  expect_refused(tw_scale(NULL), "tw_scale(NULL)");
}

int main(void) {
  const uint32_t version = (uint32_t)TW_VERSION_MAJOR << 16 | (uint32_t)TW_VERSION_MINOR << 8 |
                           (uint32_t)TW_VERSION_PATCH;
  expect(tw_version() == version, "tw_version() agrees with the header");
  expect(strlen(tw_build_info()) > 0, "tw_build_info() says something");
  expect(strlen(tw_status_string(TW_OK)) > 0, "tw_status_string(TW_OK) says something");
  expect(strlen(tw_status_string(-7)) > 0, "tw_status_string() has a text for unknown numbers");
  expect(tw_supports(TW_DEVICE_CPU, TW_DTYPE_FP32, TW_DTYPE_FP32, 64, 64) == 1,
         "float32 attention at head_dim 64 is supported");
  expect(tw_supports(TW_DEVICE_CPU, TW_DTYPE_FP32, TW_DTYPE_FP32, 63, 64) == 0,
         "head_dim 63 is not supported");
  null_arguments_are_refused();
  return failures == 0 ? 0 : 1;
}
