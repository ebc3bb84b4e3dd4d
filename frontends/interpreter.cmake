# headrace_interpreter: the chosen Python. PYTHON_INCLUDE: the folder of its headers.
if(NOT Python3_EXECUTABLE AND NOT Python_EXECUTABLE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
set(headrace_interpreter ${Python3_EXECUTABLE})
if(NOT headrace_interpreter)
  set(headrace_interpreter ${Python_EXECUTABLE})
endif()
execute_process(
  COMMAND ${headrace_interpreter} -c "import sysconfig; print(sysconfig.get_path('include'))"
  OUTPUT_VARIABLE PYTHON_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${PYTHON_INCLUDE}/Python.h)
  message(FATAL_ERROR "headrace: ${PYTHON_INCLUDE} has no Python.h: install the headers of ${headrace_interpreter}")
endif()
