namespace Quantra.Client.Wire;

/// <summary>Errors for responses that are damaged or from an incompatible version.</summary>
internal static class InvalidResponse
{
    /// <summary>Creates the exception for an invalid response.</summary>
    public static QuantraException Create(FormattableString problem, Exception? cause = null)
    {
        var message = $"the response is invalid: {FormattableString.Invariant(problem)}; use the same version of Quantra in Python and C#";
        return new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message).ToException(cause);
    }

    /// <summary>Throws if an array does not have the expected length.</summary>
    public static void ThrowIfWrongLength(string part, int have, int need)
    {
        if (have != need)
            throw Create($"{part} has {have} elements, expected {need}");
    }

    /// <summary>Throws if an optional array is present and does not have the expected length.</summary>
    public static void ThrowIfWrongLength(string part, int? have, int need)
    {
        if (have is { } length)
            ThrowIfWrongLength(part, length, need);
    }
}
