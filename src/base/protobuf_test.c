/* Bytes of messages, those of protobuf's own documentation among them. */
#include "base/protobuf.h"

#include "hr_test.h"

static void check_bytes(hr_text *text, size_t count, const char *bytes) {
  HR_ASSERT(!text->failed);
  HR_ASSERT_EQ(text->length, count);
  HR_ASSERT_BYTES_EQ(text->data, bytes, count);
  hr_text_fini(text);
}

HR_TEST(numbers) {
  hr_text text = {0};
  hr_protobuf_int(&text, 1, 150);
  check_bytes(&text, 3, "\x08\x96\x01");
  hr_protobuf_int(&text, 22, 0);
  check_bytes(&text, 3, "\xb0\x01\x00");
  hr_protobuf_int(&text, 2, (uint64_t)-2);
  check_bytes(&text, 11, "\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  hr_protobuf_double(&text, 5, -2.0);
  check_bytes(&text, 9, "\x29\0\0\0\0\0\0\0\xc0");
  hr_protobuf_fixed64(&text, 47, 258);
  check_bytes(&text, 10, "\xf9\x02\x02\x01\0\0\0\0\0\0");
}

HR_TEST(strings) {
  hr_text text = {0};
  hr_protobuf_string(&text, 2, "testing");
  check_bytes(&text, 9, "\x12\x07testing");
  hr_protobuf_strings(&text, 2, "test", "ing");
  check_bytes(&text, 9, "\x12\x07testing");
  hr_protobuf_string(&text, 2, "");
  check_bytes(&text, 2, "\x12\0");
}

HR_TEST(messages_have_their_length_in_four_bytes) {
  hr_text text = {0};
  size_t outer = hr_protobuf_begin(&text, 3);
  size_t inner = hr_protobuf_begin(&text, 1);
  hr_protobuf_int(&text, 1, 150);
  hr_protobuf_end(&text, inner);
  for (int i = 0; i < 100; ++i) {
    hr_protobuf_int(&text, 2, 1);
  }
  hr_protobuf_end(&text, outer);
  HR_ASSERT_EQ(text.length, 5 + 5 + 3 + 200);
  HR_ASSERT_BYTES_EQ(text.data, "\x1a\xd0\x81\x80\0\x0a\x83\x80\x80\0\x08\x96\x01\x10\x01", 15);
  hr_text_fini(&text);
}
