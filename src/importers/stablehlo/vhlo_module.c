/* vhlo_module.c: the sections of a file. */
#include <stdlib.h>

#include "importers/stablehlo/vhlo.h"

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, "the file is damaged: " __VA_ARGS__)

enum {
  VERSION_MAX = 6,
  SECTION_STRINGS = 0,
  SECTION_DIALECTS,
  SECTION_ATTRIBUTES,
  SECTION_OFFSETS,
  SECTION_OPERATIONS,
  SECTION_RESOURCES,
  SECTION_RESOURCE_OFFSETS,
  SECTION_VERSIONS,
  SECTION_PROPERTIES,
  SECTION_COUNT
};

static const uint8_t mark[4] = {'M', 'L', 0xef, 'R'};

bool hr__vhlo_is_file(hr__span bytes) {
  return bytes.size >= sizeof mark && memcmp(bytes.data, mark, sizeof mark) == 0;
}

void *hr__vhlo_array(hr__vhlo_module *module, size_t count, size_t size) {
  size_t bytes = hr_align_up(count * size + 1, HR_ARENA_ALIGNMENT);
  if (count > HR__VHLO_ITEMS_MAX || bytes > module->room) {
    return NULL;
  }
  module->room -= bytes;
  return hr_arena_calloc(&module->arena, 1, bytes);
}

static hr_status no_room(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %s: the file has more than %d, or too many in all",
                        what, HR__VHLO_ITEMS_MAX);
}

static hr_status check(const hr__reader *reader, const char *what) {
  return reader->has_failed ? DAMAGED("%s are cut short", what) : HR_OK;
}

/* ---- strings and names ---- */

/* Sizes come first, the last string's in front, with the zeros behind the strings. */
static hr_status read_strings(hr__vhlo_module *module, hr__span section) {
  hr__reader reader = hr__reader_of(section);
  module->string_count = hr__read_items(&reader, HR__VHLO_ITEMS_MAX);
  size_t count = (size_t)module->string_count;
  module->strings = hr__vhlo_array(module, count, sizeof *module->strings);
  module->lengths = hr__vhlo_array(module, count, sizeof *module->lengths);
  if (module->strings == NULL || module->lengths == NULL) {
    return no_room("strings");
  }
  for (size_t i = count; i-- > 0;) {
    module->lengths[i] = (size_t)hr__read_number(&reader);
  }
  for (size_t i = 0; i < count; ++i) {
    hr__span bytes = hr__read_span(&reader, module->lengths[i]);
    if (reader.has_failed || bytes.size == 0 || bytes.data[bytes.size - 1] != 0) {
      return DAMAGED("string %zu of %zu does not end inside of its section", i, count);
    }
    module->strings[i] = (const char *)bytes.data, module->lengths[i] = bytes.size - 1;
  }
  return check(&reader, "strings");
}

static const char *string_at(const hr__vhlo_module *module, uint64_t index) {
  return index < (uint64_t)module->string_count ? module->strings[index] : NULL;
}

static const char *dialect_at(const hr__vhlo_module *module, uint64_t index) {
  return index < (uint64_t)module->dialect_count ? module->dialects[index] : NULL;
}

static void skip_section(hr__reader *reader) {
  uint8_t id = hr__read_byte(reader);
  uint64_t size = hr__read_number(reader);
  if ((id & 0x80) != 0) {
    hr__reader_fail(reader);
  }
  hr__read_span(reader, size);
}

static hr_status read_dialects(hr__vhlo_module *module, hr__reader *reader) {
  module->dialect_count = hr__read_items(reader, HR__VHLO_ITEMS_MAX);
  module->dialects = hr__vhlo_array(module, (size_t)module->dialect_count, sizeof *module->dialects);
  if (module->dialects == NULL) {
    return no_room("dialects");
  }
  for (int i = 0; i < module->dialect_count; ++i) {
    uint64_t name = hr__read_number(reader);
    bool has_version = module->version >= 1 && (name & 1) != 0;
    module->dialects[i] = string_at(module, module->version >= 1 ? name >> 1 : name);
    if (module->dialects[i] == NULL) {
      return DAMAGED("dialect %d has no name", i);
    }
    if (has_version) {
      skip_section(reader);
    }
  }
  return check(reader, "dialects");
}

typedef struct row {
  const char *name, *properties;
} row;

static const row rows[] = {
#define HR_VHLO(operation, properties) {#operation, properties},
#include "importers/stablehlo/vhlo.def"
#undef HR_VHLO
};

static int compare_rows(const void *key, const void *element) {
  return strcmp(key, ((const row *)element)->name);
}

static const char *properties_of(const char *name) {
  const row *found = bsearch(name, rows, sizeof rows / sizeof *rows, sizeof *rows, compare_rows);
  return found != NULL ? found->properties : NULL;
}

/* Groups of the operations of one dialect; as many names as numbers are left at most. */
static hr_status read_names(hr__vhlo_module *module, hr__reader *reader) {
  size_t count = hr__reader_left(reader);
  if (module->version >= 4) {
    count = (size_t)hr__read_count(reader, HR__VHLO_ITEMS_MAX);
  }
  count = count < hr__reader_left(reader) ? count : hr__reader_left(reader);
  module->names = hr__vhlo_array(module, count, sizeof *module->names);
  if (module->names == NULL) {
    return no_room("names of operations");
  }
  while (hr__reader_left(reader) > 0) {
    const char *dialect = dialect_at(module, hr__read_number(reader));
    int group = hr__read_count(reader, HR__VHLO_ITEMS_MAX);
    for (int i = 0; i < group; ++i) {
      uint64_t name = hr__read_number(reader);
      const char *text = string_at(module, module->version >= 5 ? name >> 1 : name);
      if (dialect == NULL || text == NULL || reader->has_failed || (size_t)module->name_count >= count) {
        return DAMAGED("name %d of the operations", module->name_count);
      }
      module->names[module->name_count++] = (hr__vhlo_name){dialect, text, properties_of(text)};
    }
  }
  return check(reader, "names of operations");
}

/* ---- types, attributes and properties ---- */

static hr_status read_entries(hr__vhlo_module *module, hr__reader *offsets, hr__reader *bytes, int count,
                              hr__vhlo_entry *entries) {
  for (int i = 0; i < count;) {
    const char *dialect = dialect_at(module, hr__read_number(offsets));
    int group = hr__read_count(offsets, count - i);
    if (dialect == NULL || offsets->has_failed || group == 0) {
      return DAMAGED("the places of types and attributes");
    }
    for (int end = i + group; i < end; ++i) {
      uint64_t size = hr__read_number(offsets);
      entries[i] = (hr__vhlo_entry){.bytes = hr__read_span(bytes, size >> 1), dialect, (size & 1) != 0};
      if (bytes->has_failed) {
        return DAMAGED("type or attribute %d of %d does not end inside of its section", i, count);
      }
    }
  }
  return check(offsets, "places of types and attributes");
}

static hr_status read_all_entries(hr__vhlo_module *module, hr__span offsets_section, hr__span section) {
  hr__reader offsets = hr__reader_of(offsets_section), bytes = hr__reader_of(section);
  module->attribute_count = hr__read_items(&offsets, HR__VHLO_ITEMS_MAX);
  module->type_count = hr__read_items(&offsets, HR__VHLO_ITEMS_MAX);
  module->attributes = hr__vhlo_array(module, (size_t)module->attribute_count, sizeof *module->attributes);
  module->types = hr__vhlo_array(module, (size_t)module->type_count, sizeof *module->types);
  if (module->attributes == NULL || module->types == NULL) {
    return no_room("types and attributes");
  }
  HR_RETURN_IF_ERROR(read_entries(module, &offsets, &bytes, module->attribute_count, module->attributes));
  return read_entries(module, &offsets, &bytes, module->type_count, module->types);
}

static hr_status read_properties(hr__vhlo_module *module, hr__span section) {
  if (section.data == NULL) {
    return HR_OK;
  }
  hr__reader reader = hr__reader_of(section);
  module->property_count = hr__read_items(&reader, HR__VHLO_ITEMS_MAX);
  module->properties = hr__vhlo_array(module, (size_t)module->property_count, sizeof *module->properties);
  if (module->properties == NULL) {
    return no_room("properties");
  }
  for (int i = 0; i < module->property_count; ++i) {
    uint64_t size = hr__read_number(&reader);
    module->properties[i] = hr__read_span(&reader, size);
  }
  return check(&reader, "properties");
}

/* ---- the file ---- */

static void skip_padding(hr__reader *reader, const uint8_t *start, uint64_t alignment) {
  while (!reader->has_failed && alignment > 1 && (uint64_t)(reader->at - start) % alignment != 0) {
    hr__read_byte(reader);
  }
}

static hr_status read_sections(hr__reader *reader, const uint8_t *start, hr__span *sections) {
  while (hr__reader_left(reader) > 0) {
    uint8_t id = hr__read_byte(reader);
    uint64_t size = hr__read_number(reader);
    if ((id & 0x80) != 0) {
      skip_padding(reader, start, hr__read_number(reader));
    }
    hr__span section = hr__read_span(reader, size);
    id &= 0x7f;
    if (reader->has_failed || id >= SECTION_COUNT || sections[id].data != NULL) {
      return DAMAGED("section %d has no known number, comes again, or does not end inside of the file", id);
    }
    sections[id] = section;
  }
  return HR_OK;
}

static hr_status read_head(hr__vhlo_module *module, hr__reader *reader) {
  uint64_t version = hr__read_number(reader);
  const uint8_t *end = memchr(reader->at, 0, hr__reader_left(reader));
  if (reader->has_failed || end == NULL) {
    return DAMAGED("its head is cut short");
  }
  module->version = (int)(version & 0xff), module->producer = (const char *)reader->at;
  reader->at = end + 1;
  if (version > VERSION_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "bytecode of version %llu, made by %.64s: this reads up to %d",
                          (unsigned long long)version, module->producer, VERSION_MAX);
  }
  return HR_OK;
}

static hr_status read_parts(hr__vhlo_module *module, const hr__span *sections) {
  static const int needed[] = {SECTION_STRINGS, SECTION_DIALECTS, SECTION_ATTRIBUTES, SECTION_OFFSETS,
                               SECTION_OPERATIONS};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; ++i) {
    if (sections[needed[i]].data == NULL) {
      return DAMAGED("section %d is missing", needed[i]);
    }
  }
  hr__reader dialects = hr__reader_of(sections[SECTION_DIALECTS]);
  HR_RETURN_IF_ERROR(read_strings(module, sections[SECTION_STRINGS]));
  HR_RETURN_IF_ERROR(read_dialects(module, &dialects));
  HR_RETURN_IF_ERROR(read_names(module, &dialects));
  HR_RETURN_IF_ERROR(read_all_entries(module, sections[SECTION_OFFSETS], sections[SECTION_ATTRIBUTES]));
  HR_RETURN_IF_ERROR(read_properties(module, sections[SECTION_PROPERTIES]));
  return hr__vhlo_read_operations(module, sections[SECTION_OPERATIONS]);
}

hr_status hr__vhlo_read(hr__span bytes, hr__vhlo_module *module) {
  *module = (hr__vhlo_module){.room = HR__VHLO_BYTES_MAX + bytes.size};
  hr__span sections[SECTION_COUNT] = {{0}};
  if (!hr__vhlo_is_file(bytes)) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "no StableHLO portable artifact: it does not begin with ML\\xefR");
  }
  hr__reader reader = hr__reader_of((hr__span){bytes.data + sizeof mark, bytes.size - sizeof mark});
  HR_RETURN_IF_ERROR(read_head(module, &reader));
  HR_RETURN_IF_ERROR(read_sections(&reader, bytes.data, sections));
  return read_parts(module, sections);
}

void hr__vhlo_fini(hr__vhlo_module *module) {
  hr_arena_fini(&module->arena);
}
