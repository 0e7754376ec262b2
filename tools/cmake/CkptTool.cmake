# A program with everything that is installed around it.
#
#   ckpt_tool(ckpt-convert LINK ckpt::tools_ckpt_convert CLI11::CLI11)
#
# builds main.cc, has the program itself write its completions and its man page (they are made of the definitions that it
# parses its arguments by, see tools/cli/command_line.h), and installs all of them. They come with the program: who built
# that target alone can install.

include_guard(GLOBAL)
include(GNUInstallDirs)

# ckpt_tool_text(<tool> <file name> <install folder> <arguments that print it> ...)
function(ckpt_tool_text tool name folder)
  set(path ${CMAKE_BINARY_DIR}/share/${tool}/${name})
  add_custom_command(TARGET ${tool} POST_BUILD COMMAND ${tool} ${ARGN} > ${path} BYPRODUCTS ${path} VERBATIM)
  install(FILES ${path} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
endfunction()

# ckpt_tool(<tool> LINK <target> ...)
function(ckpt_tool tool)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${tool} main.cc)
  target_link_libraries(${tool} PRIVATE ckpt_warnings ${ARG_LINK})
  install(TARGETS ${tool})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/${tool})
  ckpt_tool_text(${tool} ${tool} bash-completion/completions --print-completion bash)
  ckpt_tool_text(${tool} _${tool} zsh/site-functions --print-completion zsh)
  ckpt_tool_text(${tool} ${tool}.fish fish/vendor_completions.d --print-completion fish)
  ckpt_tool_text(${tool} ${tool}.1 man/man1 --print-man-page)
endfunction()
