<?xml version="1.0" encoding="utf-8"?>
<!-- Documentation of an assembly without the namespaces that are internal. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="xml" encoding="utf-8" />
  <xsl:template match="@*|node()">
    <xsl:copy><xsl:apply-templates select="@*|node()" /></xsl:copy>
  </xsl:template>
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.V1.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Rpc.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Wire.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Transport.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Hosting.Health.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Hosting.Servers.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Hosting.Processes.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Hosting.Training.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Hosting.Clients.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Hosting.Configuration.')]" />
  <xsl:template match="member[starts-with(substring(@name, 3), 'Quantra.Client.Managed.') and not(starts-with(substring(@name, 3), 'Quantra.Client.Managed.ManagedPredictor'))]" />
</xsl:stylesheet>
