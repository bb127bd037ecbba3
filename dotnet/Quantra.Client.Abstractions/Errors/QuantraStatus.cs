namespace Quantra.Client;

/// <summary>Kind of failure, with the numbers and meanings of gRPC's status codes.</summary>
/// <remarks>A separate type, so that programs without gRPC do not depend on its package.</remarks>
public enum QuantraStatus
{
    /// <summary>Success.</summary>
    Ok = 0,

    /// <summary>The call was cancelled.</summary>
    Cancelled = 1,

    /// <summary>Unknown failure.</summary>
    Unknown = 2,

    /// <summary>The request is invalid, independent of the state of the predictor.</summary>
    InvalidArgument = 3,

    /// <summary>The deadline passed before the response.</summary>
    DeadlineExceeded = 4,

    /// <summary>The model or version does not exist.</summary>
    NotFound = 5,

    /// <summary>The thing to create already exists.</summary>
    AlreadyExists = 6,

    /// <summary>The caller does not have permission.</summary>
    PermissionDenied = 7,

    /// <summary>A limit was exceeded, by this call or by all callers together.</summary>
    ResourceExhausted = 8,

    /// <summary>The request does not fit the current state, for example bars that end too early.</summary>
    FailedPrecondition = 9,

    /// <summary>A concurrent call interfered.</summary>
    Aborted = 10,

    /// <summary>A value is beyond the valid range.</summary>
    OutOfRange = 11,

    /// <summary>The server does not implement the call.</summary>
    Unimplemented = 12,

    /// <summary>A bug.</summary>
    Internal = 13,

    /// <summary>The server is unreachable; a retry may succeed.</summary>
    Unavailable = 14,

    /// <summary>Data were damaged or lost.</summary>
    DataLoss = 15,

    /// <summary>The server does not know the caller.</summary>
    Unauthenticated = 16,
}
