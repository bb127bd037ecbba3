using System.Security.Cryptography;

namespace Quantra.Client.Hosting.Servers;

/// <summary>The tokens of one server, which only this program knows.</summary>
/// <param name="Calls">For all calls but those of the admin.</param>
/// <param name="Admin">For admin calls only.</param>
internal sealed record ServerTokens(string Calls, string Admin)
{
    public static ServerTokens Create() => new(CreateToken(), CreateToken());

    private static string CreateToken() => Convert.ToHexString(RandomNumberGenerator.GetBytes(32));
}
