namespace Quantra.Client.Wire;

/// <summary>Answers that cannot be what they are meant to be: those of a predictor of another version, or damaged ones.</summary>
internal static class Unreadable
{
    /// <summary>The error for an answer.</summary>
    /// <param name="problem">Which part of it, and what is wrong with that.</param>
    /// <param name="cause">If an exception told it.</param>
    public static QuantraException Answer(FormattableString problem, Exception? cause = null)
    {
        var message = $"the answer cannot be read: {FormattableString.Invariant(problem)}; use the same version of Quantra in Python and C#";
        return new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message).ToException(cause);
    }

    /// <summary>Refuses a part of another length.</summary>
    /// <param name="part">Its name.</param>
    /// <param name="have">Its length.</param>
    /// <param name="need">The length that follows from the rest of the answer.</param>
    public static void Unless(string part, int have, int need)
    {
        if (have != need)
            throw Answer($"{part} has {have} elements, and {need} are needed");
    }

    /// <summary>The same of a part that may be missing.</summary>
    public static void Unless(string part, int? have, int need)
    {
        if (have is { } length)
            Unless(part, length, need);
    }
}
