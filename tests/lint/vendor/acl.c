/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same for src/plat/acl.h and Huawei's acl_rt.h; tests/lint/vendor/cuda.c says how. With -DERRORS, as C++,
 * the codes of errors: some are static constants there, which C does not compare.
 */
#include <acl/acl_rt.h>

#include <acl/error_codes/rt_error_codes.h>

#include <stddef.h>

/* Where the header has these, it has the newest: they came later than what they are beside. */
#ifdef ACL_HOST_REG_PINNED
#define IS_NEW 1
#else
#define IS_NEW 0
#endif

#if defined ERRORS
#define TEI_VENDOR_TYPES
#include "plat/acl.h"
#define SAME_ERROR(name, value, status, text) static_assert(name == (value), #name);
TEI_ACL_ERRORS(SAME_ERROR)

#elif !defined LAYOUTS
#define TEI_VENDOR_TYPES
#include "plat/acl.h"

#define SAME_NUMBER(name, value) _Static_assert((int)(name) == (value), #name);
#define SAME_PROTOTYPE(name, args, required) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), aclError(*) args), #name);

TEI_ACL_NUMBERS(SAME_NUMBER)
TEI_ACL_SYMBOLS(SAME_PROTOTYPE)
#if IS_NEW
TEI_ACL_NEW_NUMBERS(SAME_NUMBER)
TEI_ACL_NEW_SYMBOLS(SAME_PROTOTYPE)
#endif

#else
#define aclError                 own_aclError
#define aclrtStream              own_aclrtStream
#define aclrtEvent               own_aclrtEvent
#define aclrtContext             own_aclrtContext
#define aclrtMemMallocPolicy     own_aclrtMemMallocPolicy
#define aclrtMemcpyKind          own_aclrtMemcpyKind
#define aclrtEventRecordedStatus own_aclrtEventRecordedStatus
#define aclmdlRICaptureMode      own_aclmdlRICaptureMode
#define aclrtMemLocation         own_aclrtMemLocation
#define aclrtPtrAttributes       own_aclrtPtrAttributes
#define aclrtUuid                own_aclrtUuid
#include "plat/acl.h"
#undef aclError
#undef aclrtStream
#undef aclrtEvent
#undef aclrtContext
#undef aclrtMemMallocPolicy
#undef aclrtMemcpyKind
#undef aclrtEventRecordedStatus
#undef aclmdlRICaptureMode
#undef aclrtMemLocation
#undef aclrtPtrAttributes
#undef aclrtUuid

#define SAME_SIZE(type)                                        \
    _Static_assert(sizeof(own_##type) == sizeof(type), #type); \
    _Static_assert(_Alignof(own_##type) == _Alignof(type), #type);
#define SAME_PLACE(type, member)                                                         \
    _Static_assert(offsetof(own_##type, member) == offsetof(type, member) &&             \
                       sizeof(((own_##type *)0)->member) == sizeof(((type *)0)->member), \
                   #type "." #member);

SAME_SIZE(aclError)
SAME_SIZE(aclrtStream)
SAME_SIZE(aclrtEvent)
SAME_SIZE(aclrtContext)
SAME_SIZE(aclrtMemMallocPolicy)
SAME_SIZE(aclrtMemcpyKind)
SAME_SIZE(aclrtEventRecordedStatus)
SAME_SIZE(aclrtMemLocation)
SAME_PLACE(aclrtMemLocation, id)
SAME_PLACE(aclrtMemLocation, type)
SAME_SIZE(aclrtPtrAttributes)
SAME_PLACE(aclrtPtrAttributes, location)
SAME_PLACE(aclrtPtrAttributes, pageSize)
#if IS_NEW
SAME_SIZE(aclmdlRICaptureMode)
SAME_SIZE(aclrtUuid)
#endif
#endif
