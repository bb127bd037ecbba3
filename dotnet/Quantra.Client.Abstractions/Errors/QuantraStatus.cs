namespace Quantra.Client;

/// <summary>What kind of failure it was, with the numbers and meanings of gRPC's status codes.</summary>
/// <remarks>A type of this package's own, so that programs which never call over gRPC need no part of it.</remarks>
public enum QuantraStatus
{
    /// <summary>No failure.</summary>
    Ok = 0,

    /// <summary>The call was cancelled.</summary>
    Cancelled = 1,

    /// <summary>It is not known what failed.</summary>
    Unknown = 2,

    /// <summary>The request cannot be right, whatever the state of the predictor.</summary>
    InvalidArgument = 3,

    /// <summary>No answer came in time.</summary>
    DeadlineExceeded = 4,

    /// <summary>There is no such model or version.</summary>
    NotFound = 5,

    /// <summary>What should be made exists already.</summary>
    AlreadyExists = 6,

    /// <summary>This caller may not.</summary>
    PermissionDenied = 7,

    /// <summary>Too much was asked, in one call or by all callers together.</summary>
    ResourceExhausted = 8,

    /// <summary>The request does not fit the state of things, such as bars that end too early.</summary>
    FailedPrecondition = 9,

    /// <summary>Another call interfered.</summary>
    Aborted = 10,

    /// <summary>Beyond the end of what there is.</summary>
    OutOfRange = 11,

    /// <summary>The server knows no such call.</summary>
    Unimplemented = 12,

    /// <summary>A bug.</summary>
    Internal = 13,

    /// <summary>Nobody answers; it may be otherwise soon.</summary>
    Unavailable = 14,

    /// <summary>A file was damaged.</summary>
    DataLoss = 15,

    /// <summary>The server does not know this caller.</summary>
    Unauthenticated = 16,
}
