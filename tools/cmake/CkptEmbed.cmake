# Text files as C++ constants.
#
#   ckpt_embed_texts(tables.cc FUNCTION EmbeddedTables HEADER converters/families/internal/embedded_tables.h FILES a.layout)
#
# generates `tables.cc` in the build folder, which defines `ckpt::EmbeddedTables()` as HEADER declares it: pairs of file
# name and text. Editing a file regenerates it.

include_guard(GLOBAL)

function(ckpt_embed_texts output)
  cmake_parse_arguments(ARG "" "FUNCTION;HEADER" "FILES" ${ARGN})
  list(TRANSFORM ARG_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/EmbedTexts.cmake)
  list(JOIN ARG_FILES "|" files)
  add_custom_command(
    OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/${output} -DFUNCTION=${ARG_FUNCTION}
            -DHEADER=${ARG_HEADER} "-DFILES=${files}" -P ${script}
    DEPENDS ${ARG_FILES} ${script}
    VERBATIM)
endfunction()
