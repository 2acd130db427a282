# SPDX-License-Identifier: Apache-2.0
# One way to find a package and one to declare a library, so that messages, warnings, sanitizers and include roots are
# the same everywhere.

# orrery_package(NAME VERSION DEBIAN_PACKAGE [arguments of find_package]): required, and says how to get it.
macro(orrery_package name version debian)
  find_package(${name} ${version} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} ${version} or newer is missing: `apt-get install ${debian}`, or run ./bootstrap build")
  endif()
endmacro()

find_program(ORRERY_CCACHE ccache)
if(ORRERY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache takes a precompiled header only when told that its macros and times do not matter.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ORRERY_CCACHE})
endif()
find_program(ORRERY_MOLD mold)

add_library(orrery_options INTERFACE)
target_include_directories(orrery_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(orrery_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False positives of GCC 12 on std::string.
  target_compile_options(orrery_options INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread
                                                   -Wno-array-bounds)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Hints to GCC's optimiser; templates that precompiled headers use are instantiated there, once.
  target_compile_options(orrery_options INTERFACE -Wno-unknown-pragmas -fpch-instantiate-templates)
endif()
if(BUILD_SHARED_LIBS)  # programs too: all share precompiled headers
  target_compile_options(orrery_options INTERFACE -fPIC)
endif()
if(ORRERY_WERROR)
  target_compile_options(orrery_options INTERFACE -Werror)
endif()
if(ORRERY_SANITIZE)
  target_compile_options(orrery_options INTERFACE -fsanitize=${ORRERY_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_link_options(orrery_options INTERFACE -fsanitize=${ORRERY_SANITIZE})
  # Whether formats suit what they are given is seen by every other build: it is a twelfth of the time to compile.
  target_compile_definitions(orrery_options INTERFACE FMT_CONSTEVAL=)
  # What reads bytes of others, or arrays by vectors, has every access checked for its alignment. Elsewhere that is a
  # fifth of the time to compile, and a null pointer ends a program anyhow.
  set(unaligned_options $<$<NOT:$<BOOL:$<TARGET_PROPERTY:ORRERY_READS_BYTES>>>:-fno-sanitize=null,alignment>)
  target_compile_options(orrery_options INTERFACE ${unaligned_options})
endif()
if(ORRERY_MOLD)
  target_link_options(orrery_options INTERFACE -fuse-ld=mold)
endif()

# Most of the time of a source is the headers of others: sets of them are compiled once. A source still names all that
# it uses, as builds without them show (-DORRERY_PRECOMPILE=OFF).
option(ORRERY_PRECOMPILE "compile common headers once" ON)

# Libraries that the fuzz targets read with tell the fuzzer which branches they take, and are optimised: it then reads
# many times as many inputs. Their common headers are compiled in the same way.
set(fuzzed_libraries orrery_base orrery_model orrery_machine orrery_timeline)
set(fuzzed_options -O2)

# orrery_headers(NAME LINKS other … HEADERS <a> "b.hpp" …): headers that no macro of whoever uses them may change.
function(orrery_headers name)
  cmake_parse_arguments(ARG "" "" "LINKS;HEADERS" ${ARGN})
  if(NOT ORRERY_PRECOMPILE)
    return()
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/headers/${name}.cpp "")
  set(sets ${name})
  if(ORRERY_FUZZ)
    list(APPEND sets fuzzed_${name})
  endif()
  foreach(set ${sets})
    add_library(${set} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/headers/${name}.cpp)
    target_link_libraries(${set} PRIVATE orrery_options ${ARG_LINKS})
    target_precompile_headers(${set} PRIVATE ${ARG_HEADERS})
  endforeach()
  if(ORRERY_FUZZ)
    target_compile_options(fuzzed_${name} PRIVATE ${fuzzed_options})
  endif()
endfunction()

# use_headers(TARGET NAME): reads these headers before its sources.
function(use_headers target name)
  if(ORRERY_FUZZ AND target IN_LIST fuzzed_libraries)
    set(name fuzzed_${name})
  endif()
  if(TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
    # Without it ccache passes precompiled headers by.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
      $<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  endif()
endfunction()

# Sources compiled many at a time take less than half as long, but each change then costs many: for builds from nothing
# (./bootstrap), not for work on the code.
option(ORRERY_UNITY "compile sources of a folder, and tests of a program, many at a time" OFF)
set(ORRERY_UNITY_MOST 40 CACHE STRING "as many at a time, with ORRERY_UNITY")
if(ORRERY_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Of so much code GCC looks from 128 MB on, again and again, for what it may forget: a tenth of its time. From 1 GB on
  # it does so seldom, and takes up to 2.2 GB.
  target_compile_options(orrery_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
  # Types that are local to a source, but seen from the one that joins them, are not those of a header.
  target_compile_options(orrery_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# join_sources(TARGET a.cpp …): those of one folder are compiled together, in as few equal parts as ORRERY_UNITY_MOST
# allows.
function(join_sources target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ORRERY_UNITY} UNITY_BUILD_MODE GROUP)
  set(folders "")
  foreach(source ${ARGN})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "in_${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND ${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH ${folder} count)
    math(EXPR parts "(${count} + ${ORRERY_UNITY_MOST} - 1) / ${ORRERY_UNITY_MOST}")
    set(i 0)
    foreach(source ${${folder}})
      math(EXPR part "${i} * ${parts} / ${count}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
      math(EXPR i "${i} + 1")
    endforeach()
  endforeach()
endfunction()

# orrery_library(NAME SOURCES a.cpp … [ALONE a.cpp …] LINKS other … [PRIVATE hidden …] [HEADERS set]): the library of
# one folder (static unless BUILD_SHARED_LIBS is on), with a set of orrery_headers compiled before. Local names of a
# source must not be those of others of its folder, or the source is compiled alone; with -DORRERY_UNITY=ON
# -DORRERY_UNITY_MOST=1000 the compiler names all of them.
function(orrery_library name)
  cmake_parse_arguments(ARG "" "HEADERS" "SOURCES;ALONE;LINKS;PRIVATE" ${ARGN})
  add_library(${name} ${ARG_SOURCES})
  list(REMOVE_ITEM ARG_SOURCES ${ARG_ALONE})
  join_sources(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC orrery_options ${ARG_LINKS} PRIVATE ${ARG_PRIVATE})
  if(name IN_LIST fuzzed_libraries OR name MATCHES "^orrery_(kernels|runtime)$")
    set_target_properties(${name} PROPERTIES ORRERY_READS_BYTES ON)
  endif()
  if(ARG_HEADERS)
    use_headers(${name} ${ARG_HEADERS})
  endif()
  if(ORRERY_FUZZ AND name IN_LIST fuzzed_libraries)
    target_compile_options(${name} PRIVATE ${fuzzed_options}
      -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
  endif()
endfunction()
